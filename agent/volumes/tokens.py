"""Service account tokens for projected volumes: requested bound to the pod, cached, renewed at 80 % of their lifetime.

Upstream renews after 80 % of the lifetime or 24 hours, whichever is first, with a little jitter so that a node's pods do not
renew at once (pkg/kubelet/token/token_manager.go). A token of before the wall clock was set, or the machine suspended, is
renewed too: the server that issued it by another time may call it expired, or not valid yet.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass

from agent.volumes.payload import VolumeError
from kube import serialize
from kube.api import authentication_v1, core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock, parse_time
from kube.errors import StatusError

log = logging.getLogger(__name__)

DEFAULT_SECONDS = 3600
LEAST_SECONDS = 60.0
"""Least time between renewals, also if this node's clock is so far ahead that every token has expired."""
_DAY = 24 * 3600.0
_RETRY = 10.0
STEP_SECONDS = 30.0
"""Difference by which the wall clock was set, rather than corrected; half of what servers allow for."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token with its expiry and the moment from which a new one is wanted (epoch seconds)."""

    text: str
    expires_at: float
    renew_at: float
    clock_offset: float = 0.0
    """The wall clock's time less the monotonic clock's when it was requested."""


@dataclass(frozen=True, slots=True)
class _Key:
    uid: str
    account: str
    audience: str
    seconds: int


class TokenCache:
    """Tokens by pod, audience and lifetime."""

    def __init__(self, client: Client, *, clock: Clock = SYSTEM) -> None:
        self._client, self._clock = client, clock
        self._tokens: dict[_Key, Token] = {}

    async def get(self, pod: core_v1.Pod, source: core_v1.ServiceAccountTokenProjection) -> Token:
        """Return a valid token, a new one where the old is due. Raise VolumeError."""
        metadata = pod.metadata
        account = pod.spec.service_account_name or "default"
        seconds = source.expiration_seconds or DEFAULT_SECONDS
        key = _Key(metadata.uid or "", account, source.audience or "", seconds)
        now = self._clock.now().timestamp()
        known = self._tokens.get(key)
        if known is not None and now < known.renew_at and not self._is_of_another_time(known):
            return known
        try:
            fresh = await self._request(pod, key, now)
        except StatusError as error:
            if known is not None and now < known.expires_at:
                log.warning("renewing the token of %s/%s: %s", metadata.namespace, account, error)
                return Token(known.text, known.expires_at, now + _RETRY, known.clock_offset)
            raise VolumeError(f"failed to fetch token: {error}") from error
        self._tokens[key] = fresh
        return fresh

    def _is_of_another_time(self, token: Token) -> bool:
        return abs(clock_offset(self._clock) - token.clock_offset) > STEP_SECONDS

    def now(self) -> float:
        """Return the time by which tokens are renewed, in epoch seconds."""
        return self._clock.now().timestamp()

    def forget(self, uid: str) -> None:
        """Drop a pod's tokens."""
        for key in [key for key in self._tokens if key.uid == uid]:
            del self._tokens[key]

    async def _request(self, pod: core_v1.Pod, key: _Key, now: float) -> Token:
        metadata = pod.metadata
        bound = authentication_v1.BoundObjectReference(
            api_version="v1", kind="Pod", name=metadata.name, uid=metadata.uid
        )
        request = authentication_v1.TokenRequest(
            api_version="authentication.k8s.io/v1",
            kind="TokenRequest",
            spec=authentication_v1.TokenRequestSpec(
                audiences=[key.audience] if key.audience else [],
                expiration_seconds=key.seconds,
                bound_object_ref=bound,
            ),
        )
        body = await self._client.post(core_v1.ServiceAccount, key.account, metadata.namespace or "", "token", request)
        status = serialize.decode(body, authentication_v1.TokenRequest).status
        expires = parse_time(status.expiration_timestamp or "").timestamp()
        # Upstream's server may grant a longer lifetime than requested; renewal uses the requested one.
        life = min(expires - now, float(key.seconds))
        renew_at = now + min(life * 0.8, _DAY) - random.uniform(0, 10.0)
        return Token(status.token or "", expires, max(renew_at, now + LEAST_SECONDS), clock_offset(self._clock))


def clock_offset(clock: Clock) -> float:
    """Return the wall clock's time less the monotonic clock's: constant until the clock is set or the machine suspended."""
    return clock.now().timestamp() - clock.monotonic()
