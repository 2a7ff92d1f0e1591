"""Access to the ports of the controllers and the scheduler: open paths, reviews, and errors of the server that reviews."""

from __future__ import annotations

from typing import Any

import pytest

from control.components.access import CACHE_SECONDS, ComponentAccess
from kube.api import authentication_v1, authorization_v1
from kube.errors import StatusError
from tests.support.clock import FakeClock


class Reviewer:
    """An API server that knows the tokens of jane and root, and lets jane read /metrics."""

    def __init__(self) -> None:
        self.reviewed: list[str] = []
        self.error: StatusError | None = None

    async def create(self, review: Any) -> Any:
        if self.error is not None:
            raise self.error
        if isinstance(review, authentication_v1.TokenReview):
            users = {"j": ("jane", []), "r": ("root", ["system:masters"])}
            name, groups = users.get(review.spec.token, ("", []))
            user = authentication_v1.UserInfo(username=name, groups=groups)
            review.status = authentication_v1.TokenReviewStatus(authenticated=bool(name), user=user)
            return review
        attributes = review.spec.non_resource_attributes
        self.reviewed.append(f"{review.spec.user} {attributes.verb} {attributes.path}")
        allowed = self.reviewed[-1] == "jane get /metrics"
        review.status = authorization_v1.SubjectAccessReviewStatus(allowed=allowed)
        return review


def access(reviewer: Reviewer, clock: FakeClock, *paths: str) -> ComponentAccess:
    client: Any = reviewer
    return ComponentAccess(client, client, clock, paths) if paths else ComponentAccess(client, client, clock)


async def code(found: ComponentAccess, path: str, token: str = "", verb: str = "get") -> int:
    try:
        await found.check("192.0.2.1", None, f"Bearer {token}" if token else "", verb, path)
    except StatusError as error:
        return error.code
    return 200


async def test_open_paths_are_exact_and_prefixes_end_with_a_star() -> None:
    reviewer, clock = Reviewer(), FakeClock()
    usual, others = access(reviewer, clock), access(reviewer, clock, "/livez*", "/x")
    assert [await code(usual, path) for path in ("/healthz", "/readyz", "/livez", "/livez/ping")] == [200] * 3 + [403]
    assert [await code(others, path) for path in ("/livez/ping", "/x", "/xy", "/healthz")] == [200, 200, 403, 403]


async def test_members_of_system_masters_are_not_reviewed() -> None:
    reviewer = Reviewer()
    assert await code(access(reviewer, FakeClock()), "/anything", "r") == 200
    assert reviewer.reviewed == []


async def test_answers_are_cached_for_ten_seconds() -> None:
    reviewer, clock = Reviewer(), FakeClock()
    found = access(reviewer, clock)
    assert [await code(found, "/metrics", "j") for _ in range(3)] == [200] * 3
    assert [await code(found, "/configz", "j") for _ in range(3)] == [403] * 3
    assert reviewer.reviewed == ["jane get /metrics", "jane get /configz"]
    await clock.advance(CACHE_SECONDS + 1)
    assert await code(found, "/metrics", "j") == 200 and len(reviewer.reviewed) == 3


async def test_the_verb_is_the_methods() -> None:
    assert await code(access(Reviewer(), FakeClock()), "/metrics", "j", "delete") == 403


@pytest.mark.parametrize(("error", "expected"), [(503, 500), (403, 500), (429, 429)])
async def test_without_an_answer_nobody_has_access(error: int, expected: int) -> None:
    reviewer = Reviewer()
    reviewer.error = StatusError(error, "Reason", "the server is away")
    found = access(reviewer, FakeClock())
    assert await code(found, "/metrics", "j") == expected and await code(found, "/metrics") == expected
    assert await code(found, "/healthz") == 200


async def test_an_unknown_token_is_unauthorized_even_on_open_paths() -> None:
    """As upstream: authentication comes before the open paths."""
    assert await code(access(Reviewer(), FakeClock()), "/healthz", "nobody's") == 401
