"""Certificates and authorities that are renewed while the servers run, as a client on a new connection sees them."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agent.server import serve as agent
from control import standalone
from kube import pki
from kube.serving.aiohttp_runner import BoundedRunner
from tests.support.control import ADMIN, ApiUnderTest, api_server

NOW = datetime.now(UTC)


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as server:
        yield server


def write(directory: Path, name: str, authority: pki.KeyPair) -> bytes:
    """Write a new serving certificate (in place of the one that is there) and return its DER bytes."""
    pair = pki.issue(authority, name, usages=(pki.SERVER,), sans=["127.0.0.1"], now=NOW)
    pair.save(directory, name)
    return ssl.PEM_cert_to_DER_cert(pair.cert_pem.decode())


async def shown(port: int) -> bytes | None:
    """Return the certificate that a server shows on a new connection."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=client)
    try:
        found: bytes | None = writer.get_extra_info("ssl_object").getpeercert(True)
        return found
    finally:
        writer.close()


@asynccontextmanager
async def kubelet_port(directory: Path) -> AsyncIterator[int]:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nothing is asked")

    listener = agent.Listener(
        address="127.0.0.1", port=0, cert_file=directory / "serving.crt", key_file=directory / "serving.key"
    )
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(agent.serve(app, listener, started.set_result))
    try:
        yield await started
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def health_port(directory: Path) -> AsyncIterator[int]:
    from aiohttp import web

    files = {"cert_file": directory / "serving.crt", "key_file": directory / "serving.key"}
    runner = BoundedRunner(web.Application())
    await runner.setup()
    try:
        await runner.listen("127.0.0.1", 0, standalone.serving(standalone.Options("scheduler", 0, **files)).current)
        yield runner.port
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("port", [kubelet_port, health_port], ids=["kubelet", "scheduler"])
async def test_a_renewed_serving_certificate_is_shown_to_the_next_client(tmp_path: Path, port: Any) -> None:
    authority = pki.new_ca("test", NOW)
    first = write(tmp_path, "serving", authority)
    async with port(tmp_path) as number:
        assert await shown(number) == first
        second = write(tmp_path, "serving", authority)
        assert await shown(number) == second != first
        (tmp_path / "serving.key").write_bytes(pki.encode_key(pki.new_key()))
        assert await shown(number) == second


async def test_the_api_server_shows_its_renewed_certificate_and_keeps_its_connections(api: ApiUnderTest) -> None:
    assert (await api.request("GET", "/api")).status == 200
    before = api.api.listener.table.authenticated
    renewed = write(api.directory / "pki", "apiserver", api.keys.ca)
    assert await shown(api.api.listener.port) == renewed
    assert (await api.request("GET", "/api")).status == 200
    assert api.api.listener.table.authenticated == before


async def test_a_client_authority_that_is_added_is_believed_and_one_that_is_removed_is_not(api: ApiUnderTest) -> None:
    other = pki.new_ca("other", NOW)
    bundle = api.directory / "pki" / "ca.crt"
    own = bundle.read_bytes()
    stranger = ("stranger", ADMIN[1])
    pki.issue(other, *stranger, now=NOW).save(api.directory, "user-stranger-system_masters")
    bundle.write_bytes(own + other.cert_pem)
    assert (await api.request("GET", "/api/v1/namespaces", user=stranger)).status == 200
    bundle.write_bytes(own)
    assert (await api.request("GET", "/api/v1/namespaces", user=stranger)).status == 401
    assert (await api.request("GET", "/api/v1/namespaces")).status == 200
