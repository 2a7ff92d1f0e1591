"""Containers and runtimes prove themselves to nobody: to reach them the authorities of the machine, 30 ms, are not read."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web

from agent.pods.hooks import Hooks
from agent.streaming import upgrade
from control.server.subresources import backends
from cri.client import Client
from kube.api import core_v1
from tests.support.handshakes import Slow
from tests.support.https import authority, served


@pytest.fixture
async def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[int]:
    """Serve over TLS with a certificate that nobody knows, while nobody may read what is known."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    def read(*_: Any) -> None:
        raise AssertionError("the machine's authorities are read")

    application = web.Application()
    application.router.add_get("/{path:.*}", answer)
    authority(tmp_path, "container")
    async with served(application, tmp_path, "container") as number:
        monkeypatch.setattr(ssl.SSLContext, "load_default_certs", read)
        monkeypatch.setattr(backends, "check_address", lambda address: address)  # it refuses loopback
        yield number


async def hook(port: int) -> None:
    action = core_v1.HTTPGetAction(port=port, scheme="HTTPS")
    handler = core_v1.LifecycleHandler(http_get=action)
    hooks = Hooks(cast(Client, None))
    await hooks.run(core_v1.Pod(), "127.0.0.1", core_v1.Container(name="c"), "id", handler)


async def session(port: int) -> None:
    with pytest.raises(upgrade.UpgradeError):  # it was reached, and is no runtime
        await upgrade.dial(f"https://127.0.0.1:{port}/exec", "GET", [])


async def proxied(port: int) -> None:
    _, writer = await backends._dial("https", "127.0.0.1", port, "default")
    writer.close()


@pytest.mark.parametrize("reach", [hook, session, proxied])
async def test_a_server_that_nobody_vouches_for_is_reached(
    port: int, reach: Callable[[int], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    handshakes = Slow(monkeypatch)
    await reach(port)
    assert any(name.startswith("tls-client") for name in handshakes.threads)
