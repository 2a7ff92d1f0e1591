from __future__ import annotations

from control.auth.review_spec import attributes_of, shown_to_conditions, spec_of
from control.auth.user import AuthzAttributes, UserInfo
from control.auth.webhooks.response_cache import ResponseCache
from kube.selectors import parse_fields
from tests.support.clock import FakeClock

ANN = UserInfo("ann", "u1", ("dev",), {"k": ("v",)})


def test_a_question_goes_into_a_review_and_back() -> None:
    requested = AuthzAttributes(
        user=ANN,
        verb="list",
        group="apps",
        version="v1",
        resource="deployments",
        namespace="shop",
        name="web",
        field_selector="metadata.name=web",
        label_selector="a in (b,c),!d",
    )
    assert attributes_of(ANN, spec_of(requested)) == requested
    assert spec_of(requested)["resourceAttributes"]["fieldSelector"] == {
        "requirements": [{"key": "metadata.name", "operator": "In", "values": ["web"]}]
    }
    path = AuthzAttributes(user=ANN, verb="get", path="/metrics")
    assert spec_of(path) == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "ann",
        "uid": "u1",
        "groups": ["dev"],
        "extra": {"k": ["v"]},
    }
    assert attributes_of(ANN, spec_of(path)) == path


def test_a_requirement_cannot_pass_for_another_one() -> None:
    def text(*requirements: dict[str, object]) -> str:
        requested = {"verb": "list", "resource": "pods", "fieldSelector": {"requirements": list(requirements)}}
        return attributes_of(ANN, {"resourceAttributes": requested}).field_selector

    sly = text({"key": "a", "operator": "In", "values": ["b,spec.nodeName=n1"]})
    assert parse_fields(sly).terms == (("a", "b,spec.nodeName=n1", True),)
    assert text({"key": "a=b,spec.nodeName", "operator": "In", "values": ["n1"]}) == ""
    labels = {
        "requirements": [{"key": "a", "operator": "In", "values": ["b),c in (d"]}, {"key": "e", "operator": "Exists"}]
    }
    requested = {"verb": "list", "resource": "pods", "labelSelector": labels}
    assert attributes_of(ANN, {"resourceAttributes": requested}).label_selector == "e"


def test_a_selector_that_cannot_be_read_is_left_out() -> None:
    requested = AuthzAttributes(user=ANN, verb="list", version="v1", resource="pods", label_selector="a in (")
    assert "labelSelector" not in spec_of(requested)["resourceAttributes"]


def test_conditions_see_every_text_also_where_it_is_empty() -> None:
    shown = shown_to_conditions(
        spec_of(AuthzAttributes(user=UserInfo("ann"), verb="list", version="v1", resource="pods"))
    )
    assert shown["groups"] == [] and shown["uid"] == "" and shown["extra"] == {}
    assert shown["resourceAttributes"]["namespace"] == "" and "nonResourceAttributes" not in shown


async def test_answers_are_kept_for_their_time_and_the_oldest_go_first() -> None:
    clock = FakeClock()
    answers: ResponseCache[str] = ResponseCache(clock, 2)
    answers.put(b"a", "one", 10)
    answers.put(b"b", "two", 20)
    answers.put(b"never", "x", 0)
    assert answers.get(b"never") is None
    assert answers.get(b"a") == "one"
    answers.put(b"c", "three", 20)
    assert answers.get(b"b") is None and answers.get(b"a") == "one"
    await clock.advance(11)
    assert answers.get(b"a") is None and answers.get(b"c") == "three"
