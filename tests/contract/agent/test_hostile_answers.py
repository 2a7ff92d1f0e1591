"""httpGet probes and hooks to servers that answer without end, too much, or not to the end."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from agent.interfaces import HookError
from agent.pods.hooks import Hooks
from agent.probes.http import HTTPProber
from agent.probes.result import Result, Target, Verdict
from agent.threads import Owner
from kube.api import core_v1
from tests.support.https import authority
from tests.support.tls13 import Sender

OK = b"HTTP/1.1 200 OK\r\n"
CONTINUE = b"HTTP/1.1 100 C\r\n\r\n"
MOST = 8 << 20
"""Bytes that a server gets rid of at most before its client has had enough: what both sockets of a connection hold."""
MAIN = core_v1.Container(name="main")


class Server:
    """Answers each request with `head`, then with `piece` again and again."""

    def __init__(self, head: bytes, piece: bytes) -> None:
        self._head, self._piece, self.sent, self.request, self.tls = head, piece, 0, b"", False
        self.ended = asyncio.Event()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            self.request = await reader.readuntil(b"\r\n\r\n")
            writer.write(self._head)
            while self._piece:
                writer.write(self._piece)
                self.sent += len(self._piece)
                await writer.drain()
                await asyncio.sleep(0)
        self.ended.set()
        writer.close()

    @contextlib.asynccontextmanager
    async def listening(self, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
        server = await asyncio.start_server(self.answer, "127.0.0.1", 0, ssl=context)
        async with server, asyncio.timeout(60):
            yield server.sockets[0].getsockname()[1]


async def probe(port: int, scheme: str = "HTTP", timeout: int = 30, **action: str) -> Result:
    get = core_v1.HTTPGetAction(port=port, scheme=scheme, **action)
    prober = HTTPProber()
    return await prober.probe(
        core_v1.Probe(http_get=get, timeout_seconds=timeout), Target(MAIN, "id", "127.0.0.1", Owner("uid"))
    )


async def hook(port: int) -> None:
    handler = core_v1.LifecycleHandler(http_get=core_v1.HTTPGetAction(port=port))
    await Hooks(None).run(core_v1.Pod(), "127.0.0.1", MAIN, "id", handler)  # type: ignore[arg-type]


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    authority(tmp_path, "container")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tmp_path / "container.crt", tmp_path / "container.key")
    return context


BROKEN = "net/http: HTTP/1.x transport connection broken: "
ENDLESS = [
    (b"", CONTINUE * 4096, "net/http: too many 1xx informational responses"),
    (b"", CONTINUE, "net/http: too many 1xx informational responses"),
    (OK, b"x: y\r\n" * 1024, "net/http: server response headers exceeded 256 lines; aborted"),
    (OK + b"x: ", b"y" * 4096, "net/http: server response headers exceeded 65536 bytes; aborted"),
    (b"HTTP/1.1 ", b" " * 4096, "net/http: server response headers exceeded 65536 bytes; aborted"),
    (b"", b"\r\n" * 4096, BROKEN + 'malformed HTTP response ""'),
]


@pytest.mark.parametrize(("head", "piece", "said"), ENDLESS)
@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_a_head_that_does_not_end_fails_a_probe_at_once(
    tls: ssl.SSLContext, scheme: str, head: bytes, piece: bytes, said: str
) -> None:
    server = Server(head, piece)
    async with server.listening(tls if scheme == "HTTPS" else None) as port:
        result = await probe(port, scheme)
        assert (result.verdict, result.message) == (
            Verdict.FAILURE,
            f'Get "{scheme.lower()}://127.0.0.1:{port}/": {said}',
        )
        await server.ended.wait()
    assert server.sent < MOST


@pytest.mark.parametrize(("head", "piece", "said"), ENDLESS)
async def test_a_head_that_does_not_end_fails_a_hook_at_once(head: bytes, piece: bytes, said: str) -> None:
    server = Server(head, piece)
    async with server.listening() as port:
        with pytest.raises(HookError) as raised:
            await hook(port)
        assert str(raised.value) == f"HTTP hook http://127.0.0.1:{port}/: {said}"
        await server.ended.wait()
    assert server.sent < MOST


async def test_a_few_informational_answers_are_passed_over() -> None:
    async with Server(CONTINUE * 5 + OK + b"Content-Length: 4\r\n\r\nwell", b"").listening() as port:
        assert await probe(port) == Result(Verdict.SUCCESS, "well")


@pytest.mark.parametrize(
    ("head", "piece", "said"),
    [
        (OK + b"\r\n", b"a" * 4096, "a" * 10240),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"a" * 4096 + b"\r\n", "a" * 10240),
        (OK + b"Content-Length: 1000000000\r\n\r\n", b"a" * 4096, "a" * 10240),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\na\r\n" * 1024, "a" * 128),
    ],
)
@pytest.mark.parametrize("scheme", ["HTTP", "HTTPS"])
async def test_of_a_body_that_does_not_end_the_beginning_is_read(
    tls: ssl.SSLContext, scheme: str, head: bytes, piece: bytes, said: str
) -> None:
    server = Server(head, piece)
    async with server.listening(tls if scheme == "HTTPS" else None) as port:
        assert await probe(port, scheme) == Result(Verdict.SUCCESS, said)
        await server.ended.wait()
    assert server.sent < MOST


async def test_a_trailer_or_a_chunks_head_that_does_not_end_is_not_read_for_long() -> None:
    for head, piece in ((b"0\r\n", b"x: y\r\n" * 1024), (b"1;", b"a" * 4096)):
        server = Server(OK + b"Transfer-Encoding: chunked\r\n\r\n" + head, piece)
        async with server.listening() as port:
            assert (await probe(port)).verdict is Verdict.FAILURE
            await server.ended.wait()
        assert server.sent < MOST


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (OK + b"Content-Length: 5\r\n\r\nwell", "unexpected EOF"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n4\r\nwell\r\n", "unexpected EOF"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\nwell\r\n", "malformed chunked encoding"),
        (b"", 'Get "URL": EOF'),
        (OK + b"x: y\r\n", f'Get "URL": {BROKEN}unexpected EOF'),
        (b"HTTP/1.1 abc\r\n", f'Get "URL": {BROKEN}malformed HTTP status code "abc"'),
        (b"HTTP/1 200 OK\r\n", f'Get "URL": {BROKEN}malformed HTTP version "HTTP/1"'),
        (OK + b"no colon\r\n\r\n", f'Get "URL": {BROKEN}malformed MIME header line: no colon'),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "HTTP probe failed with statuscode: 101"),
    ],
)
async def test_an_answer_that_is_not_whole_fails_a_probe_with_the_reason(answer: bytes, said: str) -> None:
    async with Server(answer, b"").listening() as port:
        result = await probe(port)
        assert result == Result(Verdict.FAILURE, said.replace("URL", f"http://127.0.0.1:{port}/"))


async def test_a_body_that_does_not_come_in_time_fails_a_probe() -> None:
    stop = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 5\r\n\r\nwell")
        await stop.wait()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        result = await probe(server.sockets[0].getsockname()[1], timeout=1)
        stop.set()
    late = "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
    assert result == Result(Verdict.FAILURE, late)


async def test_lines_may_end_without_a_carriage_return() -> None:
    async with Server(b"HTTP/1.0 200\nServer: nc\n\nwell", b"").listening() as port:
        assert await probe(port) == Result(Verdict.SUCCESS, "well")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        ("healthz", b"/healthz"),
        ("/a b?c=d&e=%20#f", b"/a%20b?c=d&e=%20"),
        ("/%zz/\u00e9", b"/%25zz/%C3%A9"),
        ("?deep=1", b"/?deep=1"),
    ],
)
async def test_a_path_is_sent_as_a_request_target(path: str, target: bytes) -> None:
    server = Server(OK + b"\r\n", b"")
    async with server.listening() as port:
        assert (await probe(port, path=path)).verdict is Verdict.SUCCESS
        assert server.request.startswith(b"GET %b HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n" % (target, port))


@pytest.mark.parametrize(
    ("name", "value", "check"),
    [
        ("X", "a\r\nY: b", lambda said, _: 'net/http: invalid header field value for "X"' in said),
        ("X Y", "a", lambda said, _: 'net/http: invalid header field name "X y"' in said),
        ("Content-Length", "7", lambda _, request: b"length" not in request.lower()),
        ("Host", "", lambda _, request: b"\r\nHost: 127.0.0.1:" in request),
        ("X", " a\u00e9 ", lambda _, request: b"\r\nX: a\xc3\xa9\r\n" in request),
    ],
)
async def test_headers_of_a_probe_cannot_make_another_request(
    name: str, value: str, check: Callable[[str, bytes], bool]
) -> None:
    server = Server(OK + b"\r\n", b"")
    async with server.listening() as port:
        get = core_v1.HTTPGetAction(port=port, http_headers=[core_v1.HTTPHeader(name=name, value=value)])
        result = await HTTPProber().probe(core_v1.Probe(http_get=get), Target(MAIN, "", "127.0.0.1", Owner("uid")))
    assert check(result.message, server.request), (result, server.request)


async def test_a_server_that_only_changes_its_key_fails_a_probe_at_once(tls: ssl.SSLContext, tmp_path: Path) -> None:
    tls.keylog_filename = str(tmp_path / "keys")
    tls.num_tickets = 0
    tls.minimum_version = ssl.TLSVersion.TLSv1_3
    ended = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        shaken = tls.wrap_bio(incoming, outgoing, server_side=True)
        while True:
            incoming.write(await reader.read(65536))
            with contextlib.suppress(ssl.SSLWantReadError):
                shaken.do_handshake()
                break
            writer.write(outgoing.read())
        cipher = shaken.cipher()
        assert cipher is not None
        sender = Sender(tmp_path / "keys", "SERVER_TRAFFIC_SECRET_0", cipher[0])
        with contextlib.suppress(OSError):
            while not writer.is_closing():
                writer.write(b"".join(sender.key_update() for _ in range(100)))
                await writer.drain()
                await asyncio.sleep(0)
        ended.set()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, asyncio.timeout(60):
        result = await probe(server.sockets[0].getsockname()[1], "HTTPS", timeout=50)
        assert result.verdict is Verdict.FAILURE and result.message.endswith(": EOF")
        await ended.wait()
