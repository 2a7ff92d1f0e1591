"""Health check node ports of Services that are removed while clients have open requests: no sync waits for a client."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Iterator

import pytest

from kube.clock import SYSTEM
from kube.serving.aiohttp_runner import FEW
from netproxy import health_check_ports
from netproxy.endpoints import Endpoint
from netproxy.health import Health
from netproxy.health_check_ports import HealthCheckPorts
from netproxy.model import ServicePort, ServicePortName
from tests.support.hollow import eventually
from tests.support.slow_clients import RawClient, closed, silent

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
NO_BODY = b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n"
KEY = "tenant/lb"


@pytest.fixture
def number() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        found: int = free.getsockname()[1]
        return found


def ports(number: int, name: str = "lb") -> tuple[ServicePort, ...]:
    return (
        ServicePort(
            name=ServicePortName("tenant", name, ""),
            family=4,
            protocol="TCP",
            cluster_ip="10.96.0.9",
            port=80,
            health_check_node_port=number,
            local_endpoints=(Endpoint("10.244.0.5", 80, local=True),),
        ),
    )


@pytest.fixture
def unread(number: int) -> Iterator[int]:
    """A process that sends thousands of requests once the port is there, and reads no answer."""
    pid = os.fork()
    if not pid:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(1)
        try:
            while client.connect_ex(("127.0.0.1", number)):
                time.sleep(0.05)
            while True:
                client.sendall(GET * 100)
        except OSError:
            time.sleep(60)
        finally:
            os._exit(0)
    try:
        yield number
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


async def seconds_of(server: HealthCheckPorts, changed: dict[str, tuple[ServicePort, ...]]) -> float:
    began = time.monotonic()
    await server.update(changed)
    return time.monotonic() - began


@pytest.mark.parametrize(
    "data", [NO_BODY, b"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", GET, b""]
)
async def test_a_port_is_closed_without_waiting_for_its_clients(number: int, data: bytes) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    await server.update({KEY: ports(number)})
    clients = [await RawClient.connect(number, data=data) for _ in range(20)]
    await asyncio.sleep(0.2)
    assert await seconds_of(server, {KEY: ()}) < 0.5
    async with asyncio.timeout(5):
        for client in clients:
            await client.rest()
    with pytest.raises(OSError):
        await RawClient.connect(number, data=data)
    # Another Service may get the port at once.
    assert await seconds_of(server, {KEY: ports(number)}) < 0.5
    client = await RawClient.connect(number, data=GET)
    assert (await client.head()).startswith(b"HTTP/1.1 503 ")
    client.close()
    await server.close()


async def test_connections_of_all_ports_have_one_limit() -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as one, socket.create_server(("127.0.0.1", 0)) as other:
        numbers = [each.getsockname()[1] for each in (one, other)]
    await server.update({f"tenant/{number}": ports(number, str(number)) for number in numbers})
    assert FEW.unauthenticated_per_peer == 64
    clients = [await asyncio.to_thread(silent, number) for number in numbers for _ in range(40)]
    await eventually(lambda: sum(map(is_closed, clients)) == 2 * 40 - 64)
    for client in clients:
        client.close()
    await server.close()


def is_closed(client: socket.socket) -> bool:
    """Return whether the server has closed a connection on which it sends nothing, without waiting."""
    client.setblocking(False)
    try:
        return client.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


async def test_unread_answers_delay_nothing(unread: int, caplog: pytest.LogCaptureFixture) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    await server.update({KEY: ports(unread)})
    await asyncio.sleep(2)
    assert await seconds_of(server, {KEY: ()}) < 0.5
    await asyncio.sleep(0.2)
    await server.close()
    assert caplog.text == ""


async def test_the_end_waits_for_clients_until_a_deadline(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    await server.update({KEY: ports(number)})

    async def hang(_: object) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(health_check_ports.BoundedRunner, "cleanup", hang)
    monkeypatch.setattr(health_check_ports, "CLOSE_TIMEOUT", 0.1)
    began = time.monotonic()
    await server.close()
    assert time.monotonic() - began < 2
    assert await asyncio.to_thread(closed_or_refused, number)


def closed_or_refused(number: int) -> bool:
    try:
        return closed(silent(number))
    except OSError:
        return True


async def test_an_error_of_the_cleanup_is_logged_and_ends_nothing(
    number: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    await server.update({KEY: ports(number)})

    async def fail(_: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(health_check_ports.BoundedRunner, "cleanup", fail)
    await server.update({KEY: ()})
    await server.close()
    assert "a bug" in caplog.text


async def test_a_request_for_a_service_that_is_gone_gets_503_and_its_connection_ends(number: int) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    await server.update({KEY: ports(number)})
    client = await RawClient.connect(number, data=b"")
    server._checks.clear()
    client.writer.write(GET)
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 503 ") and b"\r\nConnection: close\r\n" in answer
    await server.update({KEY: ()})
    await server.close()


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("first", ["the old Service", "the new Service"])
async def test_a_port_that_passes_to_another_service_is_served(number: int, first: str, together: bool) -> None:
    """The deletion of the Service that had the port may be read before or after the creation of the new one."""
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    changes: list[tuple[str, tuple[ServicePort, ...]]] = [(KEY, ()), ("tenant/new", ports(number, "new"))]
    if first == "the new Service":
        changes.reverse()
    try:
        await server.update({KEY: ports(number)})
        for change in [dict(changes)] if together else [dict([each]) for each in changes]:
            await server.update(change)
        client = await RawClient.connect(number, data=GET)
        async with asyncio.timeout(5):
            assert b'"new"' in await client.reader.readuntil(b"}, ")
        await server.update({"tenant/new": ()})
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", number)
    finally:
        await server.close()


async def test_a_port_of_another_process_is_opened_when_it_is_free(caplog: pytest.LogCaptureFixture) -> None:
    server = HealthCheckPorts(Health(SYSTEM), ("127.0.0.1",))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        await server.update({KEY: ports(number)})
        await server.update({})
    assert caplog.text.count(f"health check node port {number}: ") == 1
    try:
        await asyncio.gather(server.update({}), server.update({}))
        client = await RawClient.connect(number, data=GET)
        assert (await client.head()).startswith(b"HTTP/1.1 503 ")
        client.close()
    finally:
        await server.close()
