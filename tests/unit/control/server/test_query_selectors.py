"""Selectors of a query: for nobody they are not parsed, for a user once, and many terms not on the event loop."""

from __future__ import annotations

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
from control.server import query_selectors
from control.server.listing import read_options
from control.server.metrics import RequestMetrics
from control.server.pipeline import Pipeline
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
