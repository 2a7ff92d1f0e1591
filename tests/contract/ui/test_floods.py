"""Connections of other users of the machine to the server of `wherry ui`, who have no session."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from tests.contract.ui.test_server import Site
from tests.contract.ui.test_terminal import opened, output
from tests.contract.ui.test_terminal import site as site
from wherry.ui import app, server

FLOOD = 2 * server.CONNECTIONS


@contextlib.asynccontextmanager
async def flood(site: Site, sent: bytes) -> AsyncIterator[list[asyncio.StreamReader]]:
    """Open connections that begin a request and do not end it."""
    place, writers, readers = urlsplit(site.own), list[asyncio.StreamWriter](), list[asyncio.StreamReader]()
    try:
        for _ in range(FLOOD):
            reader, writer = await asyncio.open_connection(place.hostname, place.port)
            writers.append(writer)
            readers.append(reader)
            writer.write(sent)
            await asyncio.sleep(0)
        async with asyncio.timeout(20):  # all but the newest have ended
            await asyncio.gather(
                *(each.read() for each in readers[: FLOOD - server.UNAUTHENTICATED]), return_exceptions=True
            )
        yield readers
    finally:
        for each in writers:
            each.close()


def unfinished(site: Site) -> bytes:
    head = f"POST /session HTTP/1.1\r\nHost: {urlsplit(site.own).netloc}\r\nOrigin: {site.own}\r\nContent-Length: 1000\r\n\r\n"
    return head.encode() + b"{"


async def test_requests_without_a_session_end_no_watch_and_no_terminal(site: Site) -> None:
    url = site.own + "/watch?w=/api/v1/namespaces/default/pods"
    async with opened(site) as terminal, site.client.get(url, headers=site.page) as watch:
        await output(terminal, b"tty=True")
        async with flood(site, unfinished(site)):
            await terminal.send_bytes(b"\x00hello\n")
            await output(terminal, b"HELLO")
            assert (await site.get("/about"))[0] == 200
            await site.cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": {"name": "x"},
                    "spec": {"containers": [{"name": "c", "image": "x"}]},
                }
            )
            async with asyncio.timeout(20):
                while b'"name":"x"' not in await watch.content.readline():
                    pass


async def test_a_body_that_does_not_come_is_refused_soon(site: Site) -> None:
    place = urlsplit(site.own)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    writer.write(unfinished(site))
    async with asyncio.timeout(app.BODY_SECONDS + 10):
        assert b" 408 " in await reader.readline()
    writer.close()
