"""Webhooks over HTTPS for authentication (TokenReview) and authorization (SubjectAccessReview).

A kubeconfig has the address and the credentials of both sides, as upstream: the cluster is the
program, the user is this server. A review is posted to the very URL of the file. Answers that say "later" or "my
fault" are requested again, with a growing back-off (apiserver's DefaultRetryBackoffWithInitialDelay); a program that is
not there is not.

The timeout of an attempt starts when its request is sent. Those who ask for clients share a webhook's places, PLACES in all
(kube/reviews.py), so that no review waits for a connection.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kube import kubeconfig
from kube.clock import Clock
from kube.errors import StatusError, too_many_requests
from kube.fair_places import FairPlaces
from kube.json_object import UNREADABLE, Object

if TYPE_CHECKING:
    from kube.transport import HttpsTransport

FIRST_PAUSE, GROWTH, JITTER, TRIES = 0.5, 1.5, 0.2, 5
TIMEOUT = 30.0
"""Default timeout of one attempt, in seconds."""
PLACES, PLACES_OF_ONE = 100, 50
"""Requests to one webhook that are under way at a time, in all and for one address or user."""
MOST_WAITING, LONGEST_WAIT = 256, 10.0
"""Requests of one address or user that wait for a place; seconds for which they do."""
ANSWER_LIMIT, PER_BYTE_SENT = 1 << 20, 8
"""Maximum number of bytes of an answer, and how many more for each that was sent: a webhook may repeat the review in its
answer, with escapes and line breaks. A client that could make that too long would make the webhook fail."""
_AGAIN = frozenset({429, 500, 502, 503, 504})


class ReviewFailed(Exception):
    """The webhook failed, or its response is no review."""


def places() -> FairPlaces:
    """Return the places at one webhook."""
    return FairPlaces(PLACES, PLACES_OF_ONE, MOST_WAITING, LONGEST_WAIT)


def not_asked(error: Exception) -> StatusError:
    """Return the error (429) of a request whose webhook could not be asked.

    The webhook has not failed, so its failurePolicy says nothing: clients must not be able to have it skipped.
    """
    return too_many_requests(f"too many requests wait for a webhook, please try again later: {error}")


def _always() -> bool:
    return True


class ReviewClient:
    """Client of one webhook. Reads the kubeconfig when created (KubeconfigError, ssl.SSLError), connects on demand."""

    def __init__(
        self,
        path: Path,
        clock: Clock,
        timeout: float = TIMEOUT,
        first_pause: float = FIRST_PAUSE,
        *,
        retry_unreachable: bool = False,
    ) -> None:
        self.access = kubeconfig.load(path)
        self.access.ssl_context()
        self._clock, self._timeout, self._first_pause = clock, timeout, first_pause
        self._retry_unreachable = retry_unreachable
        """True if a program that cannot be reached is retried too."""
        self._transport: HttpsTransport | None = None

    async def ask(self, review: Object, wanted: Callable[[], bool] = _always) -> Object:
        """Post a review and return the `status` of what comes back; raises ReviewFailed.

        It is not retried once `wanted` returns False.
        """
        return _status(await self.send(msgspec.json.encode(review), wanted), review)

    async def send(self, body: bytes, wanted: Callable[[], bool] = _always) -> bytes:
        """Post something and return the answer's body; raises ReviewFailed."""
        pause, failure = self._first_pause, ReviewFailed("it was not asked")
        for left in reversed(range(TRIES)):
            try:
                code, answer = await self._post(body)
            except ReviewFailed as error:
                if not self._retry_unreachable or not left or not wanted():
                    raise
                failure = error
            else:
                if code < 300:
                    return answer
                shown = answer[:200].decode(errors="replace")
                failure = ReviewFailed(f"{self.access.server} answered {code}: {shown}")
                if code not in _AGAIN or not left:
                    break
            await self._clock.sleep(pause * (1 + JITTER * random.random()))
            pause *= GROWTH
            if not wanted():
                break
        raise failure

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        if self._transport is None:
            from kube.transport import HttpsTransport  # 150 ms of start-up that only those with a webhook need

            self._transport = HttpsTransport(self.access, "wherry-control")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        limit = ANSWER_LIMIT + PER_BYTE_SENT * len(body)
        try:
            answer = await self._transport.request(
                "POST", "", headers=headers, body=body, timeout=self._timeout, places=PLACES, most_bytes=limit
            )
        except (StatusError, OSError) as error:
            raise ReviewFailed(str(error)) from error
        return answer.status, answer.body

    async def close(self) -> None:
        if self._transport is not None:
            transport, self._transport = self._transport, None
            await asyncio.shield(transport.close())


def _status(answer: bytes, review: Object) -> Object:
    try:
        found = msgspec.json.decode(answer)
    except UNREADABLE as error:
        raise ReviewFailed(f"the answer is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("kind") != review["kind"]:
        raise ReviewFailed(f"the answer is no {review['kind']}")
    if found.get("apiVersion") != review["apiVersion"]:
        raise ReviewFailed(f"the answer is of {found.get('apiVersion')}, not of {review['apiVersion']}")
    status = found.get("status") or {}
    if not isinstance(status, dict):
        raise ReviewFailed("status is no object")
    return status
