"""Selectors of a query: for nobody they are not parsed, for a user once, and many terms not on the event loop."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from control.auth.authenticators import AnonymousPolicy
from control.auth.user import Credentials, Decision, UserInfo
from control.config import ControlConfig
from control.fairness.fairness import Fairness
from control.http.exchange import Answer, Handler, Request, Response
from control.server import query_selectors, selector_budget
from control.server.list_options import read_options
from control.server.metrics import RequestMetrics
from control.server.pipeline import Pipeline
from control.server.selector_budget import SelectorBudget
from control.storage.entry import Entry
from kube import selectors
from kube.errors import StatusError, unauthorized

NAMED = "fieldSelector=metadata.name%3Dp"


async def nothing(limit: int) -> bytes:
    return b""


def listed(query: str, user: str = "jane") -> Request:
    request = Request("GET", "/api/v1/namespaces/n/pods", query.encode(), {}, nothing)
    request.user = UserInfo(user)
    return request


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bool]]:
    """Say of each selector of labels that was parsed whether that was on the event loop's thread."""
    found, parse = list[bool](), selectors.parse_labels

    def counted(text: str) -> selectors.LabelSelector:
        found.append(threading.current_thread() is threading.main_thread())
        return parse(text)

    monkeypatch.setattr(selectors, "parse_labels", counted)
    yield found


class Auth:
    """Knows whoever sends a token, and allows everything."""

    def __init__(self) -> None:
        self.anonymous, self.authenticator, self.authorizer = AnonymousPolicy(), self, self

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.token == "wrong":
            raise unauthorized()
        return UserInfo("jane") if credentials.token else None

    def authorize(self, attributes: Any) -> tuple[Decision, str]:
        return Decision.ALLOW, ""


async def reads_options(request: Request) -> Answer:
    await read_options(request, None)
    return Response(200)


async def answer(request: Request, token: str | None, handler: Handler = reads_options) -> int:
    """Return the status that the pipeline answers with."""
    auth: Any = Auth()
    config = ControlConfig(*[Path("unused")] * 5)
    pipeline = Pipeline(config, auth, handler, handler, Fairness(600, 15), RequestMetrics(), lambda info: 1)
    found = await pipeline.answer(request, Credentials(None, token))
    assert isinstance(found, Response)
    return found.status


@pytest.mark.parametrize("token", [None, "wrong"])
async def test_selectors_of_nobody_are_not_parsed(threads: list[bool], token: str | None) -> None:
    request = listed(f"{NAMED}&labelSelector=a,b&watch=true")
    assert await answer(request, token) == 401
    assert threads == []
    assert (request.info.verb, request.info.name) == ("watch", "")


async def test_nobody_is_refused_before_the_query_is(threads: list[bool]) -> None:
    assert await answer(listed("x&" * 3000), None) == 401


@pytest.mark.parametrize(("terms", "here"), [(3, True), (7000, False)])
async def test_selectors_of_a_user_are_parsed_once_and_many_terms_by_the_thread(
    threads: list[bool], terms: int, here: bool
) -> None:
    request = listed(f"{NAMED}&labelSelector={','.join(['a'] * terms)}")
    assert await answer(request, "token") == 200
    assert threads == [here]
    assert request.info.name == "p"


async def test_a_selector_that_can_name_nothing_is_not_parsed_before_authorization(threads: list[bool]) -> None:
    assert (await query_selectors.naming(listed("fieldSelector=spec.nodeName%3Da&labelSelector=a"), "jane")).empty
    assert threads == []


@pytest.mark.parametrize("wrong", ["labelSelector=a%20b", "limit=x", "timeoutSeconds=x"])
async def test_next_to_an_option_that_cannot_be_read_there_is_no_name(wrong: str) -> None:
    assert (await query_selectors.naming(listed(NAMED), "jane")).exact("metadata.name") == "p"
    assert (await query_selectors.naming(listed(f"{NAMED}&{wrong}"), "jane")).empty


@pytest.mark.parametrize("wrong", ["metadata.name", "metadata.name=a=b"])
async def test_what_is_no_field_selector_names_nothing_and_is_refused_with_the_options(wrong: str) -> None:
    request = listed(f"fieldSelector={wrong}")
    assert (await query_selectors.naming(request, "jane")).empty
    with pytest.raises(StatusError) as refused:
        await read_options(request, None)
    assert refused.value.code == 400


async def test_a_watch_keeps_no_parsed_requirements() -> None:
    def count() -> int:
        gc.collect()
        return sum(isinstance(each, selectors.Requirement) for each in gc.get_objects())

    before, many = count(), 500
    request = listed(f"watch=1&labelSelector={','.join(f'k{number}!=x' for number in range(many))}")
    options = await read_options(request, None)
    assert count() - before == many
    matches = options.predicate()
    assert matches is not None
    weight = query_selectors.release(request)
    del options
    assert count() == before
    assert weight == len(request.query_string) + query_selectors.weight(request.option("labelSelector"))
    entries = (Entry("a", 1, b'{"metadata":{"labels":{"k7":"%s"}}}' % value, lambda obj: {}) for value in (b"y", b"x"))
    assert [matches(entry) for entry in entries] == [True, False]


def test_the_selectors_of_a_users_watches_have_a_budget() -> None:
    budget, size = SelectorBudget(), selector_budget.EACH // 4
    account = "system:serviceaccount:shop:{}".format
    held = [budget.hold(account(number), size) for number in range(4)]
    for number in (0, 9):
        with pytest.raises(StatusError, match="the selectors of your open watches take too much memory") as refused:
            budget.hold(account(number), size)
        assert (refused.value.code, refused.value.retry_after) == (429, selector_budget.RETRY_SECONDS)
    small = [budget.hold(account(0), selector_budget.SMALL) for _ in range(1000)]
    other = budget.hold("jane", selector_budget.EACH)
    held[0].release()
    held[0].release()
    assert budget.hold(account(9), size) not in small  # and is dropped, which releases it
    held[0] = budget.hold(account(9), size)
    for each in (*held, *small, other):
        each.release()
    assert budget._weights == {}
