"""Renewal of service account tokens by a node whose clock differs from the API server's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from agent.volumes.tokens import LEAST_SECONDS, TokenCache
from kube.api import authentication_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import format_time
from tests.support.clock import FakeClock

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Server:
    """Grants tokens for an hour by its own clock."""

    def __init__(self) -> None:
        self.granted = 0

    async def post(self, *request: Any) -> bytes:
        self.granted += 1
        expires = format_time(NOW + timedelta(hours=1))
        status = authentication_v1.TokenRequestStatus(token=str(self.granted), expiration_timestamp=expires)
        return msgspec.json.encode(authentication_v1.TokenRequest(status=status))


@pytest.mark.parametrize("ahead", [0.0, 3600.0, 315_576_000.0], ids=["right", "an hour", "ten years"])
async def test_a_node_whose_clock_is_ahead_requests_a_token_once_a_minute_at_most(ahead: float) -> None:
    server, clock = Server(), FakeClock(NOW + timedelta(seconds=ahead))
    cache = TokenCache(cast(Client, server), clock=clock)
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="p", namespace="default", uid="u"))
    source = core_v1.ServiceAccountTokenProjection(path="token", expiration_seconds=3600)
    first = await cache.get(pod, source)
    assert first.renew_at - clock.now().timestamp() >= LEAST_SECONDS
    await clock.advance(LEAST_SECONDS - 1)
    assert await cache.get(pod, source) == first
    assert server.granted == 1
