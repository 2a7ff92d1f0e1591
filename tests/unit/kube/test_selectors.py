from __future__ import annotations

import pytest

from kube import selectors
from kube.api import meta_v1

LABELS = {"app": "web", "tier": "front", "size": "7", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=web", True),
        ("app==web", True),
        ("app=api", False),
        ("app!=api", True),
        ("missing!=x", True),
        ("app in (api, web)", True),
        ("app notin (api,web)", False),
        ("missing notin (x)", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("size>6,size<8", True),
        ("size>7", False),
        ("app>1", False),
        ("empty=", True),
        ("empty", True),
        ("app=web,tier=back", False),
        ("app in (web),!missing,tier!=back", True),
        ("example.com/x=1", False),
    ],
)
def test_a_label_selector_matches_what_it_says(text: str, matches: bool) -> None:
    assert selectors.parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["a=b,", "=x", "a in", "a in (x", "a>b", "a b", "-a=b", "a=-b", "a=b=c", "a,,b"])
def test_a_broken_label_selector_is_refused(text: str) -> None:
    with pytest.raises(selectors.SelectorError):
        selectors.parse_labels(text)


def test_a_selector_prints_so_that_it_reads_back() -> None:
    for text in ("a=b", "a in (b,c)", "a notin (b,c)", "a", "!a", "a>1"):
        assert selectors.parse_labels(str(selectors.parse_labels(text))) == selectors.parse_labels(text)


def test_no_selector_matches_nothing_and_an_empty_one_everything() -> None:
    assert not selectors.from_label_selector(None).matches({})
    assert selectors.from_label_selector({}).matches(LABELS)
    assert selectors.from_label_selector(meta_v1.LabelSelector()).matches(LABELS)


def test_a_structured_selector_joins_labels_and_expressions() -> None:
    selector = selectors.from_label_selector(
        {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["back"]}]}
    )
    assert selector.matches(LABELS)
    assert not selector.matches({"app": "web", "tier": "back"})
    with pytest.raises(selectors.SelectorError, match='"Near" is not a valid label selector operator'):
        selectors.from_label_selector({"matchExpressions": [{"key": "a", "operator": "Near"}]})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("metadata.name=x", True),
        ("metadata.name==x,status.phase!=Failed", True),
        ("metadata.name!=x", False),
        (r"note=a\,b", True),
        ("absent=", True),
    ],
)
def test_a_field_selector_matches_what_it_says(text: str, matches: bool) -> None:
    fields = {"metadata.name": "x", "status.phase": "Running", "note": "a,b"}
    assert selectors.parse_fields(text).matches(fields) is matches


def test_field_selectors_are_read_term_by_term_as_upstream() -> None:
    assert selectors.parse_fields("b=2,,a=1,b=1").terms == (("a", "1", True), ("b", "1", True), ("b", "2", True))
    assert selectors.parse_fields(" a= 1 ").terms == ((" a", " 1 ", True),), "blanks count"
    assert selectors.parse_fields(r"a=x\\,b=\,\=").terms == (("a", "x\\", True), ("b", ",=", True))
    assert selectors.parse_fields("=,!=").empty
    for wrong in ("a", " ", "a=b=c", r"a=\b", "a=\\", "a!==b", "a\\=b\\"):
        with pytest.raises(selectors.SelectorError):
            selectors.parse_fields(wrong)


def test_a_field_selector_tells_the_value_it_demands() -> None:
    assert selectors.parse_fields("spec.nodeName=n1,a!=b").exact("spec.nodeName") == "n1"
    assert selectors.parse_fields("spec.nodeName!=n1").exact("spec.nodeName") is None
    with pytest.raises(selectors.SelectorError):
        selectors.parse_fields("nonsense")
