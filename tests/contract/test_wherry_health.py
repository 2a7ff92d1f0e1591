"""Health of a daemon: a response counts only if the daemon's own process sent it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator

import pytest
from aiohttp import web

from wherry import daemons, health
from wherry.settings import Settings


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a health endpoint of this process."""

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield runner.addresses[0][1]
    await runner.cleanup()


async def test_no_redirect_of_a_health_endpoint_is_followed() -> None:
    """Any account may listen on the port of a daemon that does not run, and commands run as root."""
    requested: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        requested.append(request.path)
        raise web.HTTPFound("/elsewhere")

    app = web.Application()
    app.router.add_get("/{path}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        port = runner.addresses[0][1]
        found = await health.problem(Settings(kubelet_healthz_port=port), "agent")
    finally:
        await runner.cleanup()
    assert found == f"http://127.0.0.1:{port}/healthz answers 302"
    assert requested == ["/healthz"]


@pytest.mark.parametrize(
    ("pid", "problem"),
    [(os.getpid(), None), (os.getppid(), "another process than its own"), (0, "it does not run")],
    ids=["own", "another's", "stopped"],
)
async def test_only_the_daemons_own_process_tells_its_health(
    port: int, monkeypatch: pytest.MonkeyPatch, pid: int, problem: str | None
) -> None:
    async def running(settings: Settings) -> dict[str, int]:
        return {"agent": pid}

    monkeypatch.setattr(daemons, "running", running)
    found = await health.problem(Settings(kubelet_healthz_port=port), "agent")
    assert (found is None) if problem is None else (found is not None and found.startswith(problem))
