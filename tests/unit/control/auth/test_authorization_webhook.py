"""Cached answers of an authorization webhook take little memory, whatever a review is about."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from control.auth import review_spec, reviews
from control.auth.authorizers import DecisionPending
from control.auth.user import AuthzAttributes, Decision
from control.auth.webhooks.access import LONGEST_REASON, Settings, WebhookAuthorizer
from kube.bounded_cache import forget_all
from kube.json_object import Object
from tests.support.clock import FakeClock

KIB = 1 << 10


class Client:
    def __init__(self, status: Object) -> None:
        self.status = status

    async def ask(self, review: Object, wanted: Callable[[], bool]) -> Object:
        return self.status


def webhook(**status: Any) -> WebhookAuthorizer:
    return WebhookAuthorizer(Client(status), Settings("w"), FakeClock())  # type: ignore[arg-type]


def review(number: int, size: int = 0) -> AuthzAttributes:
    """Return what is asked of a user whose groups have so many characters."""
    where = {"namespace": "n", "verb": "get", "resource": "pods"}
    spec = {"user": "u", "groups": [f"g{number}-" + "x" * size], "resourceAttributes": where}
    return review_spec.attributes_of(reviews.subject(spec), spec)


async def test_the_answer_about_a_user_of_large_groups_is_kept_in_little_memory() -> None:
    found = webhook(allowed=True)
    await found.ask(review(-1, 64 * KIB))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(50):
            await found.ask(review(number, 64 * KIB))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50 * KIB
    assert found.authorize(review(49, 64 * KIB))[0] is Decision.ALLOW
    with pytest.raises(DecisionPending):
        found.authorize(review(50, 64 * KIB))


async def test_an_answer_with_a_long_reason_is_not_kept() -> None:
    for length, kept in ((LONGEST_REASON, True), (LONGEST_REASON + 1, False)):
        found = webhook(allowed=True, reason="x" * length)
        await found.ask(review(1))
        if kept:
            assert found.authorize(review(1))[0] is Decision.ALLOW
        else:
            with pytest.raises(DecisionPending):
                found.authorize(review(1))


async def test_answers_are_forgotten_with_other_caches() -> None:
    found = webhook(allowed=True)
    await found.ask(review(1))
    forget_all()
    with pytest.raises(DecisionPending):
        found.authorize(review(1))
