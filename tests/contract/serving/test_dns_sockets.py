"""The sockets of cluster DNS: no other account can take its queries, and it serves again at once after it has ended."""

from __future__ import annotations

import asyncio
import errno
import socket

import pytest

from netproxy.dns import server as dns_server
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.responder import Responder
from netproxy.dns.server import DNSServer
from netproxy.dns.zone import Zone
from tests.support.hollow import eventually
from tests.support.ports import reserve
from tests.unit.netproxy.test_dns import CLUSTER, DOMAIN


def server_on(port: int) -> DNSServer:
    return DNSServer(Responder(Zone(CLUSTER, DOMAIN), Forwarder(list)), ["127.0.0.1"], port)


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
@pytest.mark.parametrize("option", [socket.SO_REUSEADDR, socket.SO_REUSEPORT])
async def test_no_other_socket_gets_the_queries(address: str, option: int) -> None:
    """For UDP the kernel lets sockets that all have SO_REUSEADDR share a port, of any account; the last one gets all."""
    server = server_on(reserve()[0])
    await server.start()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
            other.setsockopt(socket.SOL_SOCKET, option, 1)
            with pytest.raises(OSError) as refused:
                other.bind((address, server.port))
            assert refused.value.errno == errno.EADDRINUSE
    finally:
        server.close()


async def test_it_serves_at_once_after_it_has_ended_and_when_another_frees_the_port(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dns_server, "RETRY", 0.05)
    port = reserve()[0]
    for _ in range(2):
        server = server_on(port)
        await server.start()
        server.close()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port))
        server = server_on(port)
        running = asyncio.create_task(server.run())
        await eventually(lambda: "cluster DNS cannot serve 127.0.0.1 yet" in caplog.text)
        assert not server.serving
    await eventually(lambda: server.serving)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
