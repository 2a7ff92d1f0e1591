"""Webhook token authentication (--authentication-token-webhook-config-file).

The server posts a TokenReview with the audiences that it accepts. The result, positive or negative, is cached by the token's
digest for `cache_ttl`; failures of the webhook are not cached. Concurrent requests with the same token share one review.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Sequence

from control.auth.user import Credentials, UserInfo
from control.auth.webhooks.client import ReviewClient, ReviewFailed
from control.auth.webhooks.response_cache import ResponseCache
from kube.clock import Clock
from kube.errors import StatusError, unauthorized
from kube.json_object import Object

log = logging.getLogger(__name__)
Verdict = tuple[UserInfo, list[str]]
REMEMBERED = 4096
VERSIONS = ("v1", "v1beta1")


class TokenWebhook:
    """Asks a webhook whose tokens are. `audiences` are this server's; `cache_ttl` is seconds."""

    def __init__(
        self, client: ReviewClient, clock: Clock, audiences: Sequence[str], version: str = "v1", cache_ttl: float = 120
    ) -> None:
        if version not in VERSIONS:
            raise ValueError(f'unsupported authentication webhook version "{version}", supported are v1 and v1beta1')
        self._client, self._audiences, self._version, self._ttl = client, tuple(audiences), version, cache_ttl
        self._answers: ResponseCache[tuple[Verdict | None, str]] = ResponseCache(clock, REMEMBERED)
        self._requests: dict[bytes, asyncio.Task[tuple[Verdict | None, str]]] = {}

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the token's user; None if the webhook does not know it; raises 401 if it returns an error or fails."""
        if credentials.token is None:
            return None
        found = await self.review(credentials.token, self._audiences)
        return found[0] if found else None

    async def review(self, token: str, audiences: Sequence[str]) -> Verdict | None:
        """Return the user of a token and those of `audiences` that it is for; None if it is not known."""
        key = hashlib.sha256("\0".join((token, *audiences)).encode()).digest()
        answer = self._answers.get(key)
        if answer is None:
            task = self._requests.get(key)
            if task is None:
                work = self._ask(key, token, list(audiences))
                task = self._requests[key] = asyncio.create_task(work, name="token-webhook")
                task.add_done_callback(lambda done: self._requests.pop(key, None))
            try:
                answer = await asyncio.shield(task)
            except ReviewFailed as error:
                log.error("the token webhook failed: %s", error)
                raise unauthorized() from error
        verdict, problem = answer
        if verdict is None and problem:
            raise StatusError(401, "Unauthorized", "Unauthorized")
        return verdict

    async def _ask(self, key: bytes, token: str, audiences: list[str]) -> tuple[Verdict | None, str]:
        spec: Object = {"token": token}
        if audiences:
            spec["audiences"] = audiences
        api_version = f"authentication.k8s.io/{self._version}"
        status = await self._client.ask({"apiVersion": api_version, "kind": "TokenReview", "spec": spec})
        answer = self._read(status, audiences)
        self._answers.put(key, answer, self._ttl)
        return answer

    def _read(self, status: Object, audiences: list[str]) -> tuple[Verdict | None, str]:
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
        for task in list(self._requests.values()):
            task.cancel()
        await self._client.close()
