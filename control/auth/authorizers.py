"""The chain of authorizers: the first with an opinion decides; without one the request is denied with all reasons.

Almost all answers come from memory, so `authorize` is no coroutine. An authorizer that has to ask elsewhere (a webhook whose
answer is not known yet) raises `DecisionPending` instead, and whoever can wait asks again with `decide`; expressions, which
cannot wait in the middle, are evaluated once more with the answer at hand (`RetryingAuthorizer`). Without webhooks nobody pays
for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from control.auth.metrics import AUTHORIZATIONS, DECISIONS
from control.auth.user import SYSTEM_MASTERS, Authorizer, AuthzAttributes, Decision
from kube.client_waits import while_connected

Answer = tuple[Decision, str]
T = TypeVar("T")


class DecisionPending(Exception):
    """A webhook has to be called first; `decide` does that."""

    def __init__(self, attributes: AuthzAttributes) -> None:
        super().__init__(attributes)
        self.attributes = attributes


class MastersAuthorizer:
    """Allows members of system:masters everything, also while roles are not there yet."""

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        if SYSTEM_MASTERS in attributes.user.groups:
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, ""


class AlwaysAllow:
    """Allows everybody everything (upstream's mode of that name)."""

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        return Decision.ALLOW, ""


class AlwaysDeny:
    """Denies everything by having no opinion, as upstream, so that the next authorizers are called."""

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        return Decision.NO_OPINION, "Everything is forbidden."


class AsyncAuthorizer(Authorizer):
    """Authorizer that may have to wait for a webhook: its `authorize` raises DecisionPending, and `ask` waits."""

    async def ask(self, attributes: AuthzAttributes, asker: str = "") -> Answer:
        """Return what `authorize` would, after waiting; `asker` is whose share of the webhook it takes, "" the user's."""
        raise NotImplementedError


class Link:
    """One authorizer of a chain with the type and name that metrics and messages know it by."""

    __slots__ = ("authorizer", "name", "type")

    def __init__(self, type: str, name: str, authorizer: Authorizer) -> None:
        self.type, self.name, self.authorizer = type, name, authorizer


class UnionAuthorizer:
    """Asks each authorizer in order. `replace` puts others in their place while the server runs."""

    def __init__(self, links: Sequence[Link]) -> None:
        self.replace(links)

    def replace(self, links: Sequence[Link]) -> None:
        """Take another chain; questions under way are answered by the one they began with."""
        self.links = tuple(links)

    def has(self, type: str) -> bool:
        return any(link.type == type for link in self.links)

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        """Answer from memory; raises DecisionPending if a webhook has to be called."""
        reasons = []
        for link in self.links:
            decision, reason = link.authorizer.authorize(attributes)
            if decision is not Decision.NO_OPINION:
                return _decided(link, decision, reason)
            if reason:
                reasons.append(reason)
        return Decision.NO_OPINION, "\n".join(reasons)

    async def decide(self, attributes: AuthzAttributes, asker: str = "") -> Answer:
        """Answer, waiting for webhooks. Raises 429 if one cannot be called in time."""
        reasons = []
        for link in self.links:
            try:
                decision, reason = link.authorizer.authorize(attributes)
            except DecisionPending:
                assert isinstance(link.authorizer, AsyncAuthorizer)
                decision, reason = await link.authorizer.ask(attributes, asker)
            if decision is not Decision.NO_OPINION:
                return _decided(link, decision, reason)
            if reason:
                reasons.append(reason)
        return Decision.NO_OPINION, "\n".join(reasons)


def _decided(link: Link, decision: Decision, reason: str) -> Answer:
    if link.type:
        verdict = "allowed" if decision is Decision.ALLOW else "denied"
        DECISIONS.add(link.type, link.name, verdict)
    return decision, reason


async def decide(
    authorizer: Authorizer,
    attributes: AuthzAttributes,
    asker: str = "",
    until_left: Callable[[], Awaitable[None]] | None = None,
) -> Answer:
    """Ask an authorizer, and wait where it has to. Raises 429 if a webhook cannot be called in time.

    `asker` is whose share of the webhook it takes (kube/owners.py), "" the user's. With `until_left`, which waits until a
    client has left, it is not waited for any longer than that.
    """
    start = time.perf_counter()
    try:
        found = authorizer.authorize(attributes)
    except DecisionPending:
        assert isinstance(authorizer, UnionAuthorizer)
        pending = authorizer.decide(attributes, asker)
        found = await (pending if until_left is None else while_connected(pending, until_left))
    AUTHORIZATIONS.observe(_RESULTS[found[0]], time.perf_counter() - start)
    return found


async def allowed(authorizer: Authorizer, attributes: AuthzAttributes) -> bool:
    """Return whether an authorizer allows something."""
    return (await decide(authorizer, attributes))[0] is Decision.ALLOW


_RESULTS = {Decision.ALLOW: "allowed", Decision.DENY: "denied", Decision.NO_OPINION: "no-opinion"}


class RetryingAuthorizer:
    """An authorizer for work that cannot wait: what it lacked is requested, and the work done again from the start.

    Another thread, in which the roles may change while they are gone through, gets only what was requested.
    """

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer
        self._known: list[tuple[AuthzAttributes, Answer]] = []
        self._thread = threading.get_ident()

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        for asked, answer in self._known:
            if asked == attributes:
                return answer
        if threading.get_ident() != self._thread:
            raise DecisionPending(attributes)
        return self._authorizer.authorize(attributes)

    async def settled(self, work: Callable[[], Awaitable[T]]) -> T:
        """Return what `work` returns; it may be called several times."""
        while True:
            try:
                return await work()
            except DecisionPending as question:
                answer = await decide(self._authorizer, question.attributes)
                self._known.append((question.attributes, answer))
