"""Webhook authorizer: posts a SubjectAccessReview for requests that fulfil the match conditions.

A response is cached by the review's digest for `authorized_ttl` or `unauthorized_ttl`. If the webhook fails, its failurePolicy
applies: Deny refuses, NoOpinion leaves the decision to the next authorizers. Match conditions are expressions over
`request`, the review's spec; if one is false the webhook is skipped, otherwise an error in one counts as a failure
(apiserver/pkg/authorization/cel).

Questions are asked before a request has its seats, so they wait in round robin over the users whose requests need them
(kube/reviews.py), and the webhook's timeout starts when a question is sent. One that cannot be sent in time is refused (429)
whatever the failurePolicy: the webhook did not fail, and it might deny the request.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable

import msgspec

from control.auth.authorizers import Answer, AsyncAuthorizer, DecisionPending
from control.auth.metrics import CONDITION_ERRORS, EVALUATIONS, EXCLUDED, FAIL_OPEN, WEBHOOK_SECONDS
from control.auth.review_spec import shown_to_conditions, spec_of
from control.auth.user import AuthzAttributes, Decision
from control.auth.webhooks.client import ReviewClient, ReviewFailed, not_asked, places
from control.auth.webhooks.response_cache import ResponseCache
from control.cel import EvaluationError, Program
from control.event_loop import inline, offload
from kube.bounded_cache import on_forget
from kube.clock import Clock
from kube.fair_places import FairPlaces, NoPlace
from kube.json_object import Object
from kube.owners import owner_of
from kube.reviews import Reviews

log = logging.getLogger(__name__)
REMEMBERED = 8192
LONGEST = 10_000
"""Maximum number of characters of a client's request up to which the response is cached, as upstream."""
LONGEST_REASON = 1024
"""Maximum number of characters of a webhook's reason up to which its response is cached, to limit memory."""


class Settings(msgspec.Struct, frozen=True):
    """Configuration of one webhook. Times are seconds."""

    name: str
    version: str = "v1"
    authorized_ttl: float = 300.0
    unauthorized_ttl: float = 30.0
    deny_on_failure: bool = False
    conditions: tuple[Program, ...] = ()


class WebhookAuthorizer(AsyncAuthorizer):
    """Answers from its cache, or raises DecisionPending; `ask` calls the webhook."""

    def __init__(self, client: ReviewClient, settings: Settings, clock: Clock, line: FairPlaces | None = None) -> None:
        self._client, self.settings = client, settings
        self._answers: ResponseCache[Answer] = ResponseCache(clock, REMEMBERED)
        self._reviews: Reviews[Answer] = Reviews(line or places())
        on_forget(self._answers.clear)

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        spec = spec_of(attributes)
        try:
            instead = inline.limited(lambda: self._excused(spec)) if self.settings.conditions else None
        except inline.TooMuchHere:
            raise DecisionPending(attributes) from None
        if instead is not None:
            return instead
        found = self._answers.get(_key(spec))
        if found is None:
            raise DecisionPending(attributes)
        return found

    async def ask(self, attributes: AuthzAttributes, asker: str = "") -> Answer:
        spec = spec_of(attributes)
        key = _key(spec)
        if self.settings.conditions:  # which may have cost too much for `authorize`
            known = await offload.evaluate(attributes.user.name, 0, self._excused, spec) or self._answers.get(key)
            if known is not None:
                return known
        try:
            return await self._reviews.ask(
                asker or owner_of(attributes.user.name),
                key,
                lambda: self._answers.get(key),
                lambda wanted: self._ask(key, spec, wanted, keep=_chosen(attributes) < LONGEST),
            )
        except NoPlace as error:
            raise not_asked(error) from error

    async def _ask(self, key: bytes, spec: Object, wanted: Callable[[], bool], *, keep: bool) -> Answer:
        review = {
            "apiVersion": f"authorization.k8s.io/{self.settings.version}",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": spec if self.settings.version == "v1" else _older(spec),
        }
        start = time.perf_counter()
        try:
            status = await self._client.ask(review, wanted)
            if status.get("allowed") is True and status.get("denied") is True:
                raise ReviewFailed("webhook subject access review returned both allow and deny response")
        except ReviewFailed as error:
            result = "timeout" if "TimeoutError" in str(error) else "error"
            self._count(result, start)
            log.error("the authorization webhook %s failed: %s", self.settings.name, error)
            return self._failed(result)
        self._count("success", start)
        answer = _answer(status)
        if keep and len(answer[1]) <= LONGEST_REASON:
            allowed = answer[0] is Decision.ALLOW
            self._answers.put(key, answer, self.settings.authorized_ttl if allowed else self.settings.unauthorized_ttl)
        return answer

    def _excused(self, spec: Object) -> Answer | None:
        """Return the decision without a request: the conditions are not met, or cannot be evaluated."""
        problem: EvaluationError | None = None
        shown = shown_to_conditions(spec) if self.settings.conditions else spec
        for program in self.settings.conditions:
            try:
                if program.evaluate({"request": shown}).value is not True:
                    EXCLUDED.add("Webhook", self.settings.name)
                    return Decision.NO_OPINION, ""
            except EvaluationError as error:
                problem = error
        if problem is None:
            return None
        CONDITION_ERRORS.add("Webhook", self.settings.name)
        log.error("a match condition of the authorization webhook %s: %s", self.settings.name, problem)
        return self._failed("")

    def _failed(self, result: str) -> Answer:
        if self.settings.deny_on_failure:
            return Decision.DENY, ""
        if result:
            FAIL_OPEN.add(self.settings.name, result)
        return Decision.NO_OPINION, ""

    def _count(self, result: str, start: float) -> None:
        EVALUATIONS.add(self.settings.name, result)
        WEBHOOK_SECONDS.observe(self.settings.name, result, time.perf_counter() - start)

    async def close(self) -> None:
        await self._reviews.close()
        await self._client.close()


def _key(spec: Object) -> bytes:
    """Return the digest of a spec, which may have 3 MiB of groups in a review that a client asks for."""
    return hashlib.sha256(msgspec.json.encode(spec, order="deterministic")).digest()


def _answer(status: Object) -> Answer:
    reason = str(status.get("reason") or "")
    if status.get("denied") is True:
        return Decision.DENY, reason
    if status.get("allowed") is True:
        return Decision.ALLOW, reason
    return Decision.NO_OPINION, reason


def _older(spec: Object) -> Object:
    """Return a spec as v1beta1 has it: there groups are called group."""
    found = dict(spec)
    if "groups" in found:
        found["group"] = found.pop("groups")
    return found


def _chosen(a: AuthzAttributes) -> int:
    parts = (a.namespace, a.verb, a.group, a.version, a.resource, a.subresource, a.name, a.path)
    return sum(map(len, parts)) + len(a.field_selector) + len(a.label_selector)
