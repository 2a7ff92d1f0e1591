"""Results of `wherry check --security` on real ports: an etcd with and without TLS, and servers with old cipher suites."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kube import pki, pki_layout, tls_settings
from tests.support.etcd import etcd, needs_etcd
from wherry.security import etcd as rows
from wherry.security import gather, ports
from wherry.security.facts import Facts, Listening
from wherry.settings import Settings


@needs_etcd
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
async def test_etcd_is_looked_at_through_its_ports(tmp_path: Path, tls: bool) -> None:
    async with etcd(tmp_path / "etcd", tls=tls) as cluster:
        (member,) = cluster.members
        settings = Settings(
            prefix=str(tmp_path),
            store="etcd",
            etcd_servers=f"{cluster.scheme}://127.0.0.1:{member.client_port}",
            etcd_cafile=str(cluster.ca_file) if tls else "",
            etcd_certfile=str(cluster.cert_file) if tls else "",
            etcd_keyfile=str(cluster.key_file) if tls else "",
        )
        pki_layout.ensure(settings.layout.pki, now=datetime.now(UTC))
        found = await gather._etcd(settings)
    assert [port.url for port in found.peers] == [f"http://127.0.0.1:{member.peer_port}"]
    verdicts = {check.id: check.look(Facts(settings, etcd=found)).verdict for check in rows.CHECKS}
    # The members of the tests' etcd speak with each other without TLS.
    assert {number for number, verdict in verdicts.items() if verdict == "FAIL"} == (
        {"2.4", "2.5"} if tls else {"2.1", "2.2", "2.4", "2.5", "2.7"}
    )


@pytest.fixture
async def serve(tmp_path: Path) -> AsyncIterator[Callable[[tuple[str, ...]], asyncio.Future[int]]]:
    """Serve nothing over TLS with given cipher suites; returns the port."""
    now = datetime.now(UTC)
    pair = pki.issue(pki.new_ca("ca", now), "localhost", usages=(pki.SERVER,), sans=("127.0.0.1",), now=now)
    file = tmp_path / "pair.pem"
    file.write_bytes(pair.key_pem + pair.cert_pem)
    servers = []

    async def start(suites: tuple[str, ...]) -> int:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        tls_settings.apply(context, suites)
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    yield lambda suites: asyncio.ensure_future(start(suites))
    for server in servers:
        server.close()


async def test_a_weak_suite_is_found_and_strong_ones_are_none(
    serve: Callable[[tuple[str, ...]], asyncio.Future[int]],
) -> None:
    assert await ports.weak_suite("127.0.0.1", await serve(())) == ""
    assert await ports.weak_suite("127.0.0.1", await serve(("TLS_AES_128_GCM_SHA256",))) == ""
    weak = await ports.weak_suite("127.0.0.1", await serve(("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",)))
    assert weak.endswith("ECDHE-ECDSA-AES256-SHA"), weak


async def test_nobody_on_a_port_is_no_answer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    assert await ports.status("127.0.0.1", port, "/", ports.anybody()) == 0
    assert await ports.weak_suite("127.0.0.1", port) == ""


def test_listening_ports_are_read_in_both_families() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as four,
        socket.create_server(("::1", 0), family=socket.AF_INET6) as six,
    ):
        found = ports.listening("control", os.getpid())
        for each, address in ((four, "127.0.0.1"), (six, "::1")):
            assert Listening("control", address, each.getsockname()[1]) in found
