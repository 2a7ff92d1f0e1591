"""Cleaners that wait for a moment: the running controllers delete each thing when its time has come, and not before."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from control.controllers.certificates.cleaner import CertificateCleaner
from control.controllers.token_cleaner import TYPE, TokenCleaner
from kube.api import certificates_v1, core_v1, meta_v1
from kube.client import Response
from kube.clock import format_time
from tests.support.clock import FakeClock, settle
from tests.support.memory_api import MemoryAPI
from tests.support.working import working


class World(MemoryAPI):
    """Notes which objects are deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.gone: list[str] = []

    async def request(self, method: str, path: str, *, body: bytes = b"", **options: Any) -> Response:
        if method == "DELETE":
            self.gone.append(path.rpartition("/")[2])
            return Response(200, {}, b"{}")
        return await super().request(method, _everywhere(path))

    def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> Any:
        return super().stream(_everywhere(path), query={"resourceVersion": (query or {}).get("resourceVersion", "")})


def _everywhere(path: str) -> str:
    """The API in memory lists all namespaces alone; here are no others."""
    return path.replace("/namespaces/kube-system", "")


def token(name: str, expires: str) -> core_v1.Secret:
    metadata = meta_v1.ObjectMeta(name=name, namespace="kube-system")
    return core_v1.Secret(
        metadata=metadata, type=TYPE, data={"expiration": base64.b64encode(expires.encode()).decode()}
    )


async def test_a_bootstrap_token_goes_the_moment_it_expires_also_when_that_is_put_off() -> None:
    clock, world = FakeClock(), World()
    soon = format_time(clock.now() + timedelta(minutes=10))
    world.put(token("bootstrap-token-first", soon))
    world.put(token("bootstrap-token-second", soon))
    async with working(world, clock, TokenCleaner):
        await clock.advance(300)
        world.put(token("bootstrap-token-second", format_time(clock.now() + timedelta(minutes=10))))
        await settle(50)
        await clock.advance(299)
        assert world.gone == []
        await clock.advance(2)
        assert world.gone == ["bootstrap-token-first"]
        await clock.advance(300)
        assert world.gone == ["bootstrap-token-first", "bootstrap-token-second"]


async def test_signing_requests_go_an_hour_after_they_were_decided_and_after_a_day_else() -> None:
    clock, world = FakeClock(), World()

    def request(name: str, *decided: str) -> certificates_v1.CertificateSigningRequest:
        now = format_time(clock.now())
        conditions = [
            certificates_v1.CertificateSigningRequestCondition(type=each, status="True", last_update_time=now)
            for each in decided
        ]
        return certificates_v1.CertificateSigningRequest(
            metadata=meta_v1.ObjectMeta(name=name, creation_timestamp=format_time(start)),
            status=certificates_v1.CertificateSigningRequestStatus(conditions=conditions),
        )

    start = clock.now()
    world.put(request("forgotten"))
    world.put(request("refused"))
    async with working(world, clock, CertificateCleaner):
        await clock.advance(7200)
        world.put(request("refused", "Denied"))
        await settle(50)
        await clock.advance(3599)
        assert world.gone == []
        await clock.advance(2)
        assert world.gone == ["refused"]
        await clock.advance(24 * 3600)
        assert world.gone == ["refused", "forgotten"]
