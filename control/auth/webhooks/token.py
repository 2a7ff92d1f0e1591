"""Webhook token authentication (--authentication-token-webhook-config-file).

The server posts a TokenReview with the audiences that it accepts. The result, positive or negative, is cached by the token's
digest for `cache_ttl`; failures of the webhook are not cached. Concurrent requests with the same token share one review.

Any client can send tokens, so reviews wait in round robin over the addresses of the clients, or over the users that were
authenticated on their connections (kube/reviews.py). One that cannot be sent in time is refused (429), not unauthorized: the
client has to try again with the same token.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Sequence

import msgspec

from control.auth.user import Credentials, UserInfo
from control.auth.webhooks.client import ReviewClient, ReviewFailed, not_asked, places
from control.auth.webhooks.response_cache import ResponseCache
from kube.bearer_tokens import LONGEST
from kube.client_waits import Waiting, while_connected
from kube.clock import Clock
from kube.errors import StatusError, unauthorized
from kube.fair_places import FairPlaces, NoPlace
from kube.json_object import Object
from kube.reviews import Reviews

log = logging.getLogger(__name__)
Verdict = tuple[UserInfo, list[str]]
Answer = tuple[Verdict | None, str]
REMEMBERED = 4096
VERSIONS = ("v1", "v1beta1")


class TokenWebhook:
    """Asks a webhook whose tokens are. `audiences` are this server's; `cache_ttl` is seconds."""

    def __init__(
        self,
        client: ReviewClient,
        clock: Clock,
        audiences: Sequence[str],
        version: str = "v1",
        cache_ttl: float = 120,
        line: FairPlaces | None = None,
    ) -> None:
        if version not in VERSIONS:
            raise ValueError(f'unsupported authentication webhook version "{version}", supported are v1 and v1beta1')
        self._client, self._audiences, self._version, self._ttl = client, tuple(audiences), version, cache_ttl
        self._answers: ResponseCache[Answer] = ResponseCache(clock, REMEMBERED)
        self._refusals: ResponseCache[Answer] = ResponseCache(clock, REMEMBERED)
        """Apart, so that invented tokens evict none that is in use."""
        self._reviews: Reviews[Answer] = Reviews(line or places())

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the token's user; None if the webhook does not know it; raises 401 if it returns an error or fails."""
        if credentials.token is None:
            return None
        found = await self.review(credentials.token, self._audiences, credentials.client)
        return found[0] if found else None

    async def review(self, token: str, audiences: Sequence[str], client: Waiting | None = None) -> Verdict | None:
        """Return the user of a token and those of `audiences` that it is for; None if it is not known.

        `client` is whose share the review takes. Raises 429 if it cannot be sent in time.
        """
        if len(token) > LONGEST:
            return None
        key = hashlib.sha256(msgspec.json.encode((token, *audiences))).digest()  # no token contains another's audiences
        answer = self._known(key)
        if answer is None:
            owner = client.who if client is not None else ""
            pending = self._reviews.ask(
                owner,
                key,
                lambda: self._known(key),
                lambda wanted: self._ask(key, token, list(audiences), wanted),
            )
            try:
                answer = await (pending if client is None else while_connected(pending, client.until_lost))
            except NoPlace as error:
                raise not_asked(error) from error
            except ReviewFailed as error:
                log.error("the token webhook failed: %s", error)
                raise unauthorized() from error
        verdict, problem = answer
        if verdict is None and problem:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return verdict

    async def _ask(self, key: bytes, token: str, audiences: list[str], wanted: Callable[[], bool]) -> Answer:
        spec: Object = {"token": token}
        if audiences:
            spec["audiences"] = audiences
        api_version = f"authentication.k8s.io/{self._version}"
        status = await self._client.ask({"apiVersion": api_version, "kind": "TokenReview", "spec": spec}, wanted)
        answer = self._read(status, audiences)
        (self._answers if answer[0] is not None else self._refusals).put(key, answer, self._ttl)
        return answer

    def _known(self, key: bytes) -> Answer | None:
        return self._answers.get(key) or self._refusals.get(key)

    def _read(self, status: Object, audiences: list[str]) -> Answer:
        if status.get("authenticated") is not True:
            return None, str(status.get("error") or "")
        # A webhook that says nothing of audiences does not know them: its tokens are for this server.
        meant = status.get("audiences") or self._audiences
        shared = [audience for audience in audiences if audience in meant]
        if audiences and not shared:
            return None, ""
        user = status.get("user") or {}
        try:
            extra = {str(key).lower(): tuple(values) for key, values in (user.get("extra") or {}).items()}
            found = UserInfo(
                str(user.get("username") or ""), str(user.get("uid") or ""), tuple(user.get("groups") or ()), extra
            )
        except (AttributeError, TypeError) as error:
            raise ReviewFailed(f"status.user cannot be read: {error}") from error
        return (found, shared), ""

    async def close(self) -> None:
        await self._reviews.close()
        await self._client.close()
