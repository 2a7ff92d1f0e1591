"""Terminals of the page's server: access to them, and the messages that are passed on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest

from kube import kubeconfig
from tests.contract.ui.test_server import POD, Site, served
from wherry.testing import Exec, Output
from wherry.testing.async_cluster import AsyncCluster
from wherry.ui.terminal import MOST_BYTES, MOST_UNSEEN

PATH = "/exec?namespace=default&name=web&container=c&command=sh"


def shell(call: Exec) -> int:
    """Echo lines in capitals until one is "exit"; with its number of columns for "size"."""
    call.stdout.write(f"{call.command} tty={call.tty}\r\n".encode())
    for line in call.stdin:
        if line.strip() == b"exit":
            return 3
        call.stdout.write(line.upper())
    return 0


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncCluster(1) as cluster, served(cluster, cluster.kubeconfig) as found:
        await cluster.create(POD)
        await cluster.wait("pod/web", "Ready")
        cluster.pods.on_exec("web", shell)
        await found.begin()
        yield found


def opened(site: Site, path: str = PATH, *, token: str | None = None, origin: str | None = None) -> Any:
    """Open a terminal as the page does."""
    token = site.page["X-Wherry-Page"] if token is None else token
    headers = {"Origin": site.own if origin is None else origin}
    protocols = ("wherry.terminal", f"wherry.token.{token}")
    return site.client.ws_connect(site.own + path, protocols=protocols, headers={k: v for k, v in headers.items() if v})


async def output(socket: aiohttp.ClientWebSocketResponse, wanted: bytes) -> None:
    """Read output until it has a text."""
    found = b""
    async with asyncio.timeout(20):
        while wanted not in found:
            message = await socket.receive_bytes()
            assert message[0] == 1, message
            found += message[1:]


async def test_a_command_runs_in_a_terminal(site: Site) -> None:
    async with opened(site) as socket:
        assert socket.protocol == "wherry.terminal"
        await output(socket, b"tty=True")
        await socket.send_bytes(b"\x04" + json.dumps({"Width": 80, "Height": 24}).encode())
        for number in (b"9" * 5000, b"-1", b"x", b""):
            await socket.send_bytes(b"\xfe" + number)  # what says nothing about seen bytes is left out
        await socket.send_bytes(b"\x00hello\n")
        await output(socket, b"HELLO")
        await socket.send_bytes(b"\x00exit\n")
        async with asyncio.timeout(20):
            message = await socket.receive_bytes()
            assert message[0] == 3 and "exit code 3" in json.loads(message[1:])["message"]
            assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_only_the_page_opens_terminals(site: Site) -> None:
    wrong = [
        ("x" * 43, None, 401),
        ("", None, 401),
        (None, "", 400),
        (None, "null", 403),
        (None, "http://evil.example", 403),
    ]
    for token, origin, status in wrong:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            async with opened(site, token=token, origin=origin):
                pass
        assert refused.value.status == status, (token, origin)


async def test_the_cookie_is_needed_too_and_no_other_host_is_served(site: Site) -> None:
    headers = {"Origin": site.own}
    protocols = ("wherry.terminal", f"wherry.token.{site.page['X-Wherry-Page']}")
    async with aiohttp.ClientSession() as other:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await other.ws_connect(site.own + PATH, protocols=protocols, headers=headers)
        assert refused.value.status == 401
    wrong = {"Host": f"evil.example:{site.port}", "Origin": f"http://evil.example:{site.port}"}
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await site.client.ws_connect(site.own + PATH, protocols=protocols, headers=wrong)
    assert refused.value.status == 403
    assert (await site.get(PATH, Origin=site.own))[0] == 400, "a request without an upgrade"


async def test_wrong_requests_are_refused(site: Site) -> None:
    queries = [
        "",
        "namespace=default&name=web&command=sh",
        "namespace=default&name=web&container=c",
        "namespace=default&name=../x&container=c&command=sh",
        "namespace=default&name=web&container=c%26tty&command=sh",
        "namespace=default&name=web&container=c&command=" + "x" * 2000,
        "namespace=default&name=web&container=c" + "&command=x" * 40,
    ]
    for query in queries:
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await opened(site, f"/exec?{query}")
        assert refused.value.status == 400, query


async def test_messages_that_the_browser_has_not_to_send_end_the_terminal(site: Site) -> None:
    for message in (b"", b"\x01output", b"\x02", b"\x05x"):
        async with opened(site) as socket:
            await output(socket, b"tty=True")
            await socket.send_bytes(message)
            async with asyncio.timeout(20):
                assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED), message


async def test_texts_and_large_messages_end_the_terminal(site: Site) -> None:
    for kind in ("text", "large"):
        async with opened(site) as socket:
            await output(socket, b"tty=True")
            await (socket.send_str("x") if kind == "text" else socket.send_bytes(b"\x00" + b"x" * (65 << 10)))
            async with asyncio.timeout(20):
                assert (await socket.receive()).type in (aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.CLOSED)


async def test_output_waits_until_the_page_has_processed_what_was_sent(site: Site) -> None:
    size = 3 * MOST_UNSEEN
    site.cluster.pods.on_exec("web", lambda call: Output(stdout=b"x" * size))
    found = 0
    async with opened(site) as socket, asyncio.timeout(60):
        with pytest.raises(TimeoutError):
            while True:
                found += len(await asyncio.wait_for(socket.receive_bytes(), 1.0)) - 1
        assert found < MOST_UNSEEN + MOST_BYTES and found < size, "more was sent than the page has said it has seen"
        seen = found
        while found < size:
            await socket.send_bytes(b"\xfe" + str(seen).encode())
            seen = len(await socket.receive_bytes())
            found += seen - 1
    assert found == size


async def test_terminals_are_limited_and_their_places_become_free(site: Site) -> None:
    many = [await opened(site) for _ in range(4)]
    with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
        await opened(site)
    assert refused.value.status == 429
    for each in many:
        await each.close()
    async with asyncio.timeout(20):
        while True:
            try:
                async with opened(site) as socket:
                    await output(socket, b"tty=True")
                return
            except aiohttp.WSServerHandshakeError:
                await asyncio.sleep(0.05)


async def test_a_user_without_the_right_gets_the_reason(tmp_path: Any) -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.create(POD)
        await cluster.wait("pod/web", "Ready")
        cluster.pods.on_exec("web", shell)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "viewer"}}
        await cluster.create(account)
        request = b'{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}'
        path = "/api/v1/namespaces/default/serviceaccounts/viewer/token"
        token = json.loads(await cluster.client.call("POST", path, body=request))["status"]["token"]
        access = kubeconfig.load(cluster.kubeconfig)
        config = tmp_path / "config"
        config.write_text(kubeconfig.render(kubeconfig.Access(access.server, access.ca, token=token)))
        async with served(cluster, config) as site:
            await site.begin()
            async with opened(site) as socket, asyncio.timeout(20):
                message = await socket.receive_bytes()
                assert message[0] == 3 and "403" in json.loads(message[1:])["message"]
