"""The probes against real servers on loopback."""

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import grpc.aio
import pytest
from aiohttp import web

from agent.probes.handlers import Handlers
from agent.probes.result import Target, Verdict
from agent.threads import Owner
from cri.client import Client
from cri.fake import FakeRuntime
from cri.messages import ContainerConfig, ContainerMetadata, ImageSpec, PodSandboxConfig, PodSandboxMetadata
from kube.api import core_v1

Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def _http(reply: Reply) -> AsyncIterator[int]:
    server = web.Server(reply)
    runner = web.ServerRunner(server, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@pytest.fixture
async def handlers(tmp_path: Path) -> AsyncIterator[Handlers]:
    async with FakeRuntime(tmp_path / "cri.sock") as fake, Client(fake.endpoint) as client:
        fake.images.add("image")
        config = PodSandboxConfig(metadata=PodSandboxMetadata(name="pod", uid="uid", namespace="default"))
        sandbox = await client.runtime.run_pod_sandbox(config)
        container = ContainerConfig(
            metadata=ContainerMetadata(name="main"), image=ImageSpec(image="image"), command=["sleep", "600"]
        )
        container_id = await client.runtime.create_container(sandbox, container, config)
        await client.runtime.start_container(container_id)
        made = Handlers(client.runtime)
        made.container_id = container_id  # type: ignore[attr-defined]
        yield made


def _target(handlers: Handlers, **settings: object) -> Target:
    container = core_v1.Container(name="main", **settings)  # type: ignore[arg-type]
    return Target(container, handlers.container_id, "127.0.0.1", Owner("uid"))  # type: ignore[attr-defined]


def _get(port: int | str, path: str = "/", timeout: int = 30, **headers: str) -> core_v1.Probe:
    wanted = [core_v1.HTTPHeader(name=name.replace("_", "-"), value=value) for name, value in headers.items()]
    action = core_v1.HTTPGetAction(port=port, path=path, http_headers=wanted)
    return core_v1.Probe(http_get=action, timeout_seconds=timeout)


@pytest.mark.parametrize(
    ("status", "verdict", "message"),
    [
        (200, Verdict.SUCCESS, "body"),
        (399, Verdict.WARNING, "Probe terminated redirects, Response body: body"),
        (400, Verdict.FAILURE, "HTTP probe failed with statuscode: 400"),
        (503, Verdict.FAILURE, "HTTP probe failed with statuscode: 503"),
    ],
)
async def test_an_http_status_decides(handlers: Handlers, status: int, verdict: Verdict, message: str) -> None:
    async def reply(request: web.Request) -> web.Response:
        return web.Response(status=status, text="body")

    async with _http(reply) as port:
        result = await handlers.run(_get(port), _target(handlers))
    assert (result.verdict, result.message) == (verdict, message)


async def test_an_http_probe_sends_its_user_agent_and_the_configured_headers(handlers: Handlers) -> None:
    seen: list[dict[str, str]] = []

    async def reply(request: web.Request) -> web.Response:
        seen.append(dict(request.headers))
        return web.Response()

    ports = [core_v1.ContainerPort(name="web", container_port=0)]
    async with _http(reply) as port:
        ports[0].container_port = port
        await handlers.run(_get("web", "/x", X_Custom="1", Host="example.com"), _target(handlers, ports=ports))
        await handlers.run(_get("web", "/x", User_Agent="me", Accept=""), _target(handlers, ports=ports))
    assert seen[0] == {
        "Host": "example.com",
        "User-Agent": "kube-probe/1.36",
        "Accept": "*/*",
        "X-Custom": "1",
        "Connection": "close",
    }
    assert seen[1] == {"Host": f"127.0.0.1:{port}", "User-Agent": "me", "Connection": "close"}


async def test_redirects_are_followed_on_the_same_host_only(handlers: Handlers) -> None:
    async def reply(request: web.Request) -> web.Response:
        where = {"/here": "/end", "/away": "http://example.com/", "/loop": "/loop"}.get(request.path)
        return web.Response(status=302, headers={"Location": where}) if where else web.Response(text="end")

    async with _http(reply) as port:
        here = await handlers.run(_get(port, "/here"), _target(handlers))
        away = await handlers.run(_get(port, "/away"), _target(handlers))
        loop = await handlers.run(_get(port, "/loop"), _target(handlers))
    assert (here.verdict, here.message) == (Verdict.SUCCESS, "end")
    assert away.verdict is Verdict.WARNING
    assert loop.verdict is Verdict.FAILURE
    assert "stopped after 10 redirects" in loop.message


@asynccontextmanager
async def _redirecting(location: bytes) -> AsyncIterator[int]:
    """Serve one redirect as these bytes; web.Response would encode them."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 302 Found\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % location)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("location", "message"),
    [
        (b"http://[", r'Get "http://127.0.0.1:\d+/": failed to parse Location header "http://\[": Invalid IPv6 URL'),
        (
            "http://127.0.0.1\u2100/".encode(),
            r'Get ".*": failed to parse Location header "http://127.0.0.1\\u2100/": .*',
        ),
        (b"http://127.0.0.1:99999/", r'Get "http://127.0.0.1:99999/": Port out of range 0-65535'),
        (b"ftp://127.0.0.1/", r'Get "ftp://127.0.0.1/": unsupported protocol scheme "ftp"'),
        (b"/\xff\xfe", r'Get "http://127.0.0.1:\d+/%FF%FE": stopped after 10 redirects'),
    ],
)
async def test_a_redirect_that_leads_nowhere_fails_the_probe_with_the_reason(
    handlers: Handlers, caplog: pytest.LogCaptureFixture, location: bytes, message: str
) -> None:
    async with _redirecting(location) as port:
        result = await handlers.run(_get(port), _target(handlers))
    assert result.verdict is Verdict.FAILURE
    assert re.fullmatch(message, result.message), result.message
    assert result.message.encode()  # it is sent in an event
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize("host", ["[", "a:9"])
async def test_a_host_that_makes_no_url_is_the_probes_error(handlers: Handlers, host: str) -> None:
    probe = core_v1.Probe(http_get=core_v1.HTTPGetAction(port=1, host=host))
    assert (await handlers.run(probe, _target(handlers))).verdict is Verdict.ERRORED


async def test_a_name_that_cannot_be_looked_up_fails_a_tcp_probe(handlers: Handlers) -> None:
    probe = core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(port=1, host="a..b"), timeout_seconds=30)
    result = await handlers.run(probe, _target(handlers))
    assert (result.verdict, result.message) == (Verdict.FAILURE, "dial tcp: lookup a..b: no such host")


async def test_a_server_that_does_not_answer_in_time_fails_the_probe(handlers: Handlers) -> None:
    async def reply(request: web.Request) -> web.Response:
        await asyncio.sleep(30)
        return web.Response()

    async with _http(reply) as port:
        result = await handlers.run(_get(port, timeout=1), _target(handlers))
    assert result.verdict is Verdict.FAILURE
    assert result.message == (
        f'Get "http://127.0.0.1:{port}/": context deadline exceeded (Client.Timeout exceeded while awaiting headers)'
    )


async def test_a_closed_port_fails_http_and_tcp_probes_with_the_reason(handlers: Handlers) -> None:
    http = await handlers.run(_get(1), _target(handlers))
    assert http.message == 'Get "http://127.0.0.1:1/": dial tcp 127.0.0.1:1: connect: connection refused'
    tcp = await handlers.run(
        core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(port=1), timeout_seconds=30), _target(handlers)
    )
    assert (tcp.verdict, tcp.message) == (Verdict.FAILURE, "dial tcp 127.0.0.1:1: connect: connection refused")


async def test_an_open_port_is_enough_for_tcp(handlers: Handlers) -> None:
    server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        probe = core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(port=port), timeout_seconds=30)
        assert (await handlers.run(probe, _target(handlers))).verdict is Verdict.SUCCESS


async def test_a_port_name_that_the_container_lacks_is_the_probes_error(handlers: Handlers) -> None:
    assert (await handlers.run(_get("none"), _target(handlers))).verdict is Verdict.ERRORED


async def test_a_commands_exit_code_decides_and_its_output_is_the_message(handlers: Handlers) -> None:
    def probe(script: str, timeout: int = 30) -> core_v1.Probe:
        return core_v1.Probe(exec=core_v1.ExecAction(command=["sh", "-c", script]), timeout_seconds=timeout)

    env = [core_v1.EnvVar(name="WORD", value="well")]
    good = await handlers.run(probe("echo $(WORD)"), _target(handlers, env=env))
    assert (good.verdict, good.message) == (Verdict.SUCCESS, "well\n")
    bad = await handlers.run(probe("echo broken >&2; exit 1"), _target(handlers))
    assert (bad.verdict, bad.message) == (Verdict.FAILURE, "broken\n")
    late = await handlers.run(probe("sleep 60", 1), _target(handlers))
    assert (late.verdict, late.message) == (Verdict.FAILURE, 'command "sh -c sleep 60" timed out')


@pytest.mark.parametrize(
    ("service", "verdict", "message"),
    [
        (None, Verdict.SUCCESS, "service healthy"),
        ("ill", Verdict.FAILURE, re.escape('service unhealthy (responded with "NOT_SERVING")')),
        ("none", Verdict.FAILURE, "error: health rpc probe failed: NOT_FOUND"),
        ("long", Verdict.FAILURE, "error: health rpc probe failed: RESOURCE_EXHAUSTED: .* larger than max"),
    ],
)
async def test_a_grpc_probe_sends_the_service_to_the_health_service(
    handlers: Handlers, service: str | None, verdict: Verdict, message: str
) -> None:
    async def check(request: bytes, context: grpc.aio.ServicerContext) -> bytes:
        name = request[2:].decode()
        if name == "none":
            await context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        if name == "long":
            return b"\x08\x01\x12\xff\x0f" + b"x" * 2047  # SERVING and a field that is not known
        return b"\x08\x02" if name == "ill" else b"\x08\x01"

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": method}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        probe = core_v1.Probe(grpc=core_v1.GRPCAction(port=port, service=service), timeout_seconds=30)
        result = await handlers.run(probe, _target(handlers))
    finally:
        await server.stop(None)
    assert result.verdict is verdict
    assert re.match(message, result.message)


async def test_a_grpc_server_without_a_health_service_and_none_at_all_fail(handlers: Handlers) -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        probe = core_v1.Probe(grpc=core_v1.GRPCAction(port=port), timeout_seconds=30)
        result = await handlers.run(probe, _target(handlers))
    finally:
        await server.stop(None)
    assert "does not implement the grpc health protocol" in result.message
    nobody = await handlers.run(core_v1.Probe(grpc=core_v1.GRPCAction(port=1)), _target(handlers))
    assert nobody.message.startswith('timeout: failed to connect service "127.0.0.1:1" within 1s')


@pytest.mark.parametrize(
    ("scheme", "answer", "output"),
    [
        ("HTTPS", b"HTTP/1.0 400 Bad Request\r\n\r\n", "http: server gave HTTP response to HTTPS client"),
        ("HTTP", b"hi\n", 'net/http: HTTP/1.x transport connection broken: malformed HTTP response "hi"'),
    ],
)
async def test_a_server_without_http_or_tls_is_reported_with_gos_message(
    handlers: Handlers, scheme: str, answer: bytes, output: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    action = core_v1.HTTPGetAction(port=port, scheme=scheme)
    async with server:
        result = await handlers.run(core_v1.Probe(http_get=action, timeout_seconds=30), _target(handlers))
    assert (result.verdict, result.message) == (
        Verdict.FAILURE,
        f'Get "{scheme.lower()}://127.0.0.1:{port}/": {output}',
    )


def _serve(listener: socket.socket) -> None:
    """Answer requests as a server in another process does."""
    with contextlib.suppress(OSError):
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.recv(4096)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")


@pytest.mark.parametrize("kind", ["http", "tcp"])
async def test_time_in_which_the_event_loop_is_blocked_does_not_count_for_the_timeout(
    handlers: Handlers, kind: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_serve, args=(listener,))
        server.start()
        port = listener.getsockname()[1]
        action = core_v1.TCPSocketAction(port=port)
        tcp = core_v1.Probe(tcp_socket=action, timeout_seconds=1)
        probing = asyncio.ensure_future(
            handlers.run(_get(port, timeout=1) if kind == "http" else tcp, _target(handlers))
        )
        await asyncio.sleep(0)
        time.sleep(1.2)  # noqa: ASYNC251 - the loop is blocked
        result = await probing
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
    assert result.verdict is Verdict.SUCCESS, result.message
