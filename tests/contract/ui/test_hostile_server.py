"""The server of `wherry ui` with an API server whose answers do not fit: it returns errors, and prints no traceback."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import aiohttp
import pytest
from aiohttp import web

from kube import kubeconfig
from tests.contract.ui.test_server import Site, served
from wherry.testing.async_cluster import AsyncCluster
from wherry.ui import computing

SERVICES = "/api/v1/namespaces/default/services"
ANSWERS: dict[str, tuple[int, bytes]] = {
    "/metrics": (200, b"apiserver_storage_objects 1e308\napiserver_storage_objects 1e308\n"),
    "/api/v1/pods": (302, b"{}"),
    "/api/v1/nodes": (204, b""),
    "/api/v1/namespaces": (999, b"{}"),
    f"{SERVICES}/bad": (200, b'{"metadata":{"name":5}}'),
    f"{SERVICES}/text": (200, b"not json \x1b]0;owned\x07"),
    f"{SERVICES}/bytes": (200, b"\xff\xfe"),
    f"{SERVICES}/deep": (200, b'{"metadata":{"name":"deep"},"spec":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "/wherry/v1/journal": (200, b'{"entries":[{"time":1e999,"actor":"a"}],"completeSince":1,"more":false}'),
}


async def hostile(request: web.Request) -> web.Response:
    status, body = ANSWERS.get(request.path, (404, b'{"kind":"Status","code":404,"message":"no"}'))
    headers = {"Location": "http://127.0.0.1:9/x"} if status == 302 else {}
    return web.Response(status=status, reason="x", body=body, headers=headers)


@pytest.fixture
async def site(tmp_path: Path) -> AsyncIterator[Site]:
    runner = web.ServerRunner(web.Server(hostile))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    config = tmp_path / "config"
    config.write_text(kubeconfig.render(kubeconfig.Access(url, b"", None, None, token="t"), user="u"))
    try:
        async with served(cast(AsyncCluster, SimpleNamespace(url=url)), config) as found:
            await found.begin()
            yield found
    finally:
        await runner.cleanup()


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/api/v1/pods", 502, "the API server's answer has the status 302"),
        ("/api/v1/nodes", 502, "the API server's answer has the status 204"),
        ("/api/v1/namespaces", 502, "the API server's answer has the status 999"),
        *(
            (f"/traffic?namespace=default&name={name}", 502, "an answer of the API server cannot be read")
            for name in ("bad", "text", "bytes", "deep")
        ),
        ("/why?kind=service&namespace=default&name=text", 502, "an answer of the API server cannot be read"),
        ("/why?kind=service&namespace=default&name=bad", 404, "got `int`"),
    ],
)
async def test_an_answer_that_does_not_fit_becomes_an_error(
    site: Site, path: str, status: int, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    found, body = await site.get(path)
    assert found == status and said in body["message"]
    assert not [each for each in caplog.records if each.exc_info]


async def test_numbers_whose_sum_is_none_leave_out_their_family(site: Site) -> None:
    status, found = await site.get("/inside")
    assert status == 200 and found["server"]["values"] == {"apiserver_storage_objects": {"": 1e308}}
    status, found = await site.get("/decisions?since=1&until=2")
    assert status == 200 and "no journal" in found["why"]


async def test_an_unforeseen_error_is_answered_and_printed_as_one_line(
    site: Site, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: Any) -> dict[str, Any]:
        raise KeyError("\x1b]0;owned\x07")

    monkeypatch.setattr(computing.Computing, "answer", fails)
    status, body = await site.get("/inside")
    assert (status, body["reason"]) == (500, "InternalError")
    (record,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert record.exc_info is None and record.getMessage() == "a request of the page failed: KeyError"


async def test_an_answer_that_takes_too_long_ends(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(computing, "SECONDS", 0.0)
    status, body = await site.get("/inside")
    assert status == 504 and "are not complete after 0 s" in body["message"]


async def test_a_terminal_is_opened_by_get_only(site: Site) -> None:
    headers = {"Origin": site.own, "Upgrade": "websocket", "Connection": "Upgrade"}
    with pytest.raises(aiohttp.WSServerHandshakeError, match="405"):
        async with site.client.ws_connect(f"{site.own}/exec", method="POST", headers=headers):
            pass
