"""The cache of a token webhook's answers: one entry for a token and its audiences, whatever characters they have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from control.auth.webhooks.token import TokenWebhook
from kube.json_object import Object
from tests.support.clock import FakeClock


async def test_a_token_shares_no_answer_with_the_token_and_the_audience_that_it_is_joined_of() -> None:
    asked: list[Object] = []

    class Client:
        async def ask(self, review: Object, wanted: Callable[[], bool]) -> Object:
            asked.append(review["spec"])
            return {"authenticated": True, "user": {"username": review["spec"]["token"]}, "audiences": ["b", "here"]}

    webhook = TokenWebhook(cast(Any, Client()), FakeClock(), ["here"])
    for token, audiences in (("a", ["b"]), ("a\0b", []), ("a", ["b"])):
        found = await webhook.review(token, audiences)
        assert found is not None and found[0].name == token
    assert asked == [{"token": "a", "audiences": ["b"]}, {"token": "a\0b"}]
