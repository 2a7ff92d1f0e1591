"""Requests passed on to other servers: they end with their client, and keep no body but what the backend has not read yet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from control.http import backend_exchange
from control.server.subresources import backends
from tests.contract.test_api_nodes import cluster, connection, store_status, upgrade
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually

NODE_PROXY = "/api/v1/nodes/n/proxy/x"
LOGS = "/api/v1/namespaces/default/pods/p/log"


class Backend:
    """A pod's server: it notes what comes, and answers what the test says."""

    def __init__(self) -> None:
        self.reads = asyncio.Event()
        self.reads.set()
        self.answer = b""
        self.after = b""
        """Bytes of the request that must have come before the answer is sent."""
        self.received = b""
        self.came, self.closed = asyncio.Event(), asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.came.set()
        with contextlib.suppress(OSError):
            await self.reads.wait()
            sent = False
            while data := await reader.read(65536):
                self.received += data
                if self.answer and not sent and self.after in self.received:
                    writer.write(self.answer)
                    sent = True
        self.closed.set()
        writer.close()


@pytest.fixture
async def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[ApiUnderTest, Backend, str]]:
    """Serve a pod on loopback; with its backend and the path of its proxy."""
    monkeypatch.setattr(backends, "check_address", lambda address: address)
    backend = Backend()
    listener = await asyncio.start_server(backend.serve, "127.0.0.1", 0, limit=1 << 16)
    port = listener.sockets[0].getsockname()[1]
    async with listener, cluster(tmp_path) as (server, _), asyncio.timeout(60):
        await store_status(server, {"podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}]}, "/registry/pods/default/p")
        yield server, backend, f"/api/v1/namespaces/default/pods/p:{port}/proxy/sink"
        backend.reads.set()


def head(method: str, path: str, *headers: str) -> bytes:
    return "\r\n".join((f"{method} {path} HTTP/1.1", "Host: api", *headers, "", "")).encode()


def under_way() -> int:
    return sum("run_asgi" in repr(task.get_coro()) for task in asyncio.all_tasks())


ASKED = {"request": head("GET", "{}"), "upgrade": upgrade("{}")}


@pytest.mark.parametrize(
    ("target", "form"),
    [("pod", "request"), ("pod", "upgrade"), ("node", "request"), ("node", "upgrade"), ("log", "request")],
)
async def test_a_request_ends_with_its_client_where_the_backend_does_not_answer(
    pod: tuple[ApiUnderTest, Backend, str], tmp_path_factory: pytest.TempPathFactory, target: str, form: str
) -> None:
    sent = ASKED[form]
    if target == "pod":
        server, backend, path = pod
        came, closed = backend.came, backend.closed
        await ends(server, sent.replace(b"{}", path.encode()), came, closed)
        return
    async with cluster(tmp_path_factory.mktemp("node")) as (server, node):
        path = NODE_PROXY if target == "node" else LOGS
        came = asyncio.Event()
        node.answer = lambda: came.set() or b""  # type: ignore[func-returns-value]
        await ends(server, sent.replace(b"{}", path.encode()), came, node.closed)


async def ends(server: ApiUnderTest, sent: bytes, came: asyncio.Event, closed: asyncio.Event) -> None:
    before = under_way()
    _, writer = await connection(server)
    writer.write(sent)
    await came.wait()
    await eventually(lambda: under_way() > before)
    writer.close()
    await closed.wait()
    while under_way() > before:
        await asyncio.sleep(0.01)


async def test_a_body_waits_at_its_client_while_the_backend_does_not_read(
    pod: tuple[ApiUnderTest, Backend, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No more than buffers of the kernel and of the connections is taken of it; a backend that stalls is closed."""
    monkeypatch.setattr(backend_exchange, "STALL_SECONDS", 1.0)
    server, backend, path = pod
    backend.reads.clear()
    reader, writer = await connection(server)
    writer.write(head("POST", path, "Content-Length: 64000000"))
    await backend.came.wait()
    taken = 0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            while taken < 64_000_000:
                writer.write(bytes(100_000))
                taken += 100_000
                await writer.drain()
    assert taken < 32_000_000
    status = await reader.readuntil(b"\r\n")
    assert status.startswith(b"HTTP/1.1 504 ")
    writer.close()


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_beyond_the_limit_of_objects_is_passed_on_as_it_comes(
    pod: tuple[ApiUnderTest, Backend, str], chunked: bool
) -> None:
    server, backend, path = pod
    backend.answer, backend.after = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", b"the end"
    body = b"x" * 4_000_000 + b"the end"
    reader, writer = await connection(server)
    if chunked:
        writer.write(head("POST", path, "Transfer-Encoding: chunked"))
        writer.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
    else:
        writer.write(head("POST", path, f"Content-Length: {len(body)}") + body)
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 200 ")
    writer.close()
    sent = backend.received.partition(b"\r\n\r\n")[2]
    assert sent.count(b"x") == 4_000_000 and b"the end" in sent
    assert (b"transfer-encoding: chunked" in backend.received.lower()) == chunked


async def test_a_refusal_is_passed_on_before_the_body_has_come(pod: tuple[ApiUnderTest, Backend, str]) -> None:
    server, backend, path = pod
    backend.answer = b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"
    reader, writer = await connection(server)
    writer.write(head("POST", path, "Content-Length: 1000000") + bytes(1000))
    answer = await reader.readuntil(b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413 ") and b"connection: close" in answer.lower()
    writer.close()
