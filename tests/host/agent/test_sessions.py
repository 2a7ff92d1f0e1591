"""exec, attach, port-forward and logs through the kubelet's API, in the protocols that clients speak, to real containers."""

import asyncio
import json
import ssl
import struct
from urllib.parse import urlencode

import aiohttp
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from agent.streaming import spdy
from tests.host.agent.conftest import Node, Served

STDOUT, STDERR, ERROR = 1, 2, 3


def _exec(container: str, *command: str, **desired_ones: str) -> str:
    query = urlencode([("command", word) for word in command] + list(desired_ones.items()))
    return f"/exec/default/pod/{container}?{query}"


def _connect(served: Served, path: str, protocol: str) -> connect:
    return connect(served.url(path, "wss"), ssl=served.tls, subprotocols=[protocol], proxy=None)  # type: ignore[list-item]


async def _collect(socket: ClientConnection) -> dict[int, bytes]:
    """Read to the end: what came on each channel."""
    found: dict[int, list[bytes]] = {}
    try:
        async for message in socket:
            assert isinstance(message, bytes)
            found.setdefault(message[0], []).append(message[1:])
    except ConnectionClosed:
        pass
    return {channel: b"".join(parts) for channel, parts in found.items()}


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
def test_a_commands_outputs_and_exit_code_come_on_their_channels(node: Node, protocol: str) -> None:
    async def body(served: Served) -> None:
        path = _exec("main", "sh", "-c", "echo out; echo err >&2; exit 7", output="1", error="1")
        async with _connect(served, path, protocol) as socket:
            assert socket.subprotocol == protocol
            found = await _collect(socket)
            assert socket.close_code == 1000
        assert (found[STDOUT], found[STDERR]) == (b"out\n", b"err\n")
        status = json.loads(found[ERROR])
        assert (status["status"], status["reason"]) == ("Failure", "NonZeroExitCode")
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "7"}]

    node.run(body)


def test_a_command_that_succeeds_returns_status_success(node: Node) -> None:
    async def body(served: Served) -> None:
        async with _connect(served, _exec("main", "true", output="1"), "v5.channel.k8s.io") as socket:
            found = await _collect(socket)
        assert json.loads(found[ERROR])["status"] == "Success"

    node.run(body)


def test_input_reaches_the_command_and_its_end_too(node: Node) -> None:
    async def body(served: Served) -> None:
        async with _connect(served, _exec("main", "md5sum", input="1", output="1"), "v5.channel.k8s.io") as socket:
            for _ in range(64):
                await socket.send(b"\0" + bytes(32 << 10))
            await socket.send(b"\xff\0")  # no more on channel 0
            found = await _collect(socket)
        assert found[STDOUT] == b"b2d1236c286a3c0704224fe4105eca49  -\n"  # of 2 MiB of zeros
        assert json.loads(found[ERROR])["status"] == "Success"

    node.run(body)


def test_a_large_output_arrives_whole_and_before_the_status(node: Node) -> None:
    async def body(served: Served) -> None:
        path = _exec("main", "sh", "-c", "dd if=/dev/zero bs=65536 count=256 2>/dev/null; exit 3", output="1")
        async with _connect(served, path, "v5.channel.k8s.io") as socket:
            found = await _collect(socket)
        assert len(found[STDOUT]) == 16 << 20
        assert json.loads(found[ERROR])["details"]["causes"][0]["message"] == "3"

    node.run(body)


def test_a_terminal_has_the_size_that_the_client_sends(node: Node) -> None:
    async def body(served: Served) -> None:
        script = "while [ \"$(stty size)\" != '33 77' ]; do sleep 0.05; done; stty size"
        path = _exec("main", "sh", "-c", script, output="1", error="1", tty="1")
        async with _connect(served, path, "v5.channel.k8s.io") as socket:
            await socket.send(b"\4" + json.dumps({"Width": 77, "Height": 33}).encode())
            found = await _collect(socket)
        assert b"33 77" in found[STDOUT]
        assert STDERR not in found

    node.run(body)


def test_base64_channels_are_text(node: Node) -> None:
    async def body(served: Served) -> None:
        path = _exec("main", "echo", "hello", output="1")
        messages = []
        async with _connect(served, path, "base64.channel.k8s.io") as socket:
            async for message in socket:
                messages.append(message)
        assert "1aGVsbG8K" in messages

    node.run(body)


def test_attach_shows_output_from_now_on_and_carries_input(node: Node) -> None:
    async def body(served: Served) -> None:
        path = "/attach/default/pod/main?input=1&output=1"
        async with _connect(served, path, "v5.channel.k8s.io") as socket:
            await socket.send(b"\0hello\n")
            seen = b""
            async for message in socket:
                assert isinstance(message, bytes)
                seen += message[1:]
                if seen == b"hello\n":
                    break

    node.run(body)


def test_an_spdy_client_is_connected_to_the_runtime_untouched(node: Node) -> None:
    async def body(served: Served) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", served.port, ssl=served.tls)
        path = _exec("main", "sh", "-c", "echo out; exit 2", output="1")
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: node\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n"
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nX-Stream-Protocol-Version: v3.channel.k8s.io\r\n\r\n".encode()
        )
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert head.startswith("http/1.1 101 ")
        assert "x-stream-protocol-version: v4.channel.k8s.io" in head
        connection = spdy.Connection()
        streams = {connection.open_stream({"streamtype": name}): name for name in ("error", "stdout")}
        writer.write(connection.take())
        found = {"error": b"", "stdout": b""}
        while data := await reader.read(65536):
            for event in connection.receive(data):
                if isinstance(event, spdy.Data):
                    found[streams[event.stream_id]] += event.data
            writer.write(connection.take())
        writer.close()
        assert found["stdout"] == b"out\n"
        assert json.loads(found["error"])["details"]["causes"][0]["message"] == "2"

    node.run(body)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/exec/default/none/main?command=true&output=1", 404, "pod does not exist"),
        ("/exec/default/pod/none?command=true&output=1", 500, 'container not found ("none")'),
        ("/exec/default/pod/main?command=true", 400, "you must specify at least 1 of stdin, stdout, stderr"),
        ("/exec/default/pod/other-uid/main?command=true&output=1", 404, "pod does not exist"),
    ],
)
def test_a_session_that_cannot_begin_is_an_ordinary_answer(node: Node, path: str, status: int, text: str) -> None:
    async def body(served: Served) -> None:
        with pytest.raises(InvalidStatus) as caught:
            async with _connect(served, path, "v5.channel.k8s.io"):
                pass
        assert caught.value.response.status_code == status
        assert (caught.value.response.body or b"").decode() == text

    node.run(body)


def test_without_an_upgrade_or_a_known_subprotocol_the_request_is_bad(node: Node) -> None:
    async def body(served: Served) -> None:
        async with aiohttp.ClientSession() as http:
            answer = await http.get(served.url(_exec("main", "true", output="1")), ssl=served.tls)
            assert (answer.status, await answer.text()) == (400, "Upgrade request required")
        with pytest.raises(InvalidStatus) as caught:
            async with _connect(served, _exec("main", "true", output="1"), "v9.channel.k8s.io"):
                pass
        assert caught.value.response.status_code == 400

    node.run(body)


def test_nobody_without_a_client_certificate_gets_in(node: Node) -> None:
    async def body(served: Served) -> None:
        tls = ssl.create_default_context(cafile=str(served.folder / "ca.crt"))
        async with aiohttp.ClientSession() as http:
            for path in ("/healthz", "/pods", "/containerLogs/default/pod/main", "/metrics"):
                answer = await http.get(served.url(path), ssl=tls)
                assert (answer.status, await answer.text()) == (401, "Unauthorized")

    node.run(body)


def test_a_port_is_forwarded_through_a_tunnelled_spdy_connection(node: Node) -> None:
    async def body(served: Served) -> None:
        name = "SPDY/3.1+portforward.k8s.io"
        url = served.url("/portForward/default/pod")
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(url, ssl=served.tls, protocols=[name]) as socket,
        ):
            assert socket.protocol == name
            connection = spdy.Connection()
            connection.open_stream({"streamtype": "error", "port": "8080", "requestid": "0"}, fin=True)
            data_stream = connection.open_stream({"streamtype": "data", "port": "8080", "requestid": "0"})
            connection.send(data_stream, b"GET / HTTP/1.0\r\n\r\n")
            await socket.send_bytes(connection.take())
            answer = b""
            async for message in socket:
                for event in connection.receive(message.data):
                    if isinstance(event, spdy.Data) and event.stream_id == data_stream:
                        answer += event.data
                if b"served" in answer:
                    break
        assert answer.startswith(b"HTTP/1.")
        assert answer.endswith(b"served\n")

    node.run(body)


def test_a_port_is_forwarded_over_two_channels(node: Node) -> None:
    async def body(served: Served) -> None:
        async with _connect(served, "/portForward/default/pod?port=8080", "v4.channel.k8s.io") as socket:
            assert [await socket.recv(), await socket.recv()] == [
                b"\0" + struct.pack("<H", 8080),
                b"\1" + struct.pack("<H", 8080),
            ]
            await socket.send(b"\0GET / HTTP/1.0\r\n\r\n")
            answer = b""
            while b"served" not in answer:
                message = await socket.recv()
                assert isinstance(message, bytes)
                assert message[0] == 0
                answer += message[1:]
        assert answer.startswith(b"HTTP/1.")

    node.run(body)


def test_a_forwarding_over_channels_ends_when_all_its_ports_have_ended(node: Node) -> None:
    async def body(served: Served) -> None:
        url = "/portForward/default/pod?port=8080&port=8080&port=9"
        async with _connect(served, url, "v4.channel.k8s.io") as socket:
            found, asked = {channel: b"" for channel in range(6)}, False
            await socket.send(b"\0GET / HTTP/1.0\r\n\r\n")
            async for message in socket:
                assert isinstance(message, bytes)
                found[message[0]] += message[1:]
                if not asked and b"served" in found[0]:
                    asked = True  # the first port's end leaves the second
                    await socket.send(b"\2GET / HTTP/1.0\r\n\r\n")
        for channel in (0, 2):
            assert found[channel].endswith(b"served\n"), found
        assert b"connect" in found[5].lower() and len(found[4]) == 2, "nothing listens there"

    node.run(body)


def test_logs_are_read_and_followed_to_the_containers_end(node: Node) -> None:
    async def body(served: Served) -> None:
        async with aiohttp.ClientSession() as http:
            url = served.url("/containerLogs/default/pod/main?follow=true")
            async with http.get(url, ssl=served.tls) as answer:
                assert answer.status == 200
                assert await answer.content.readline() == b"first\n"
                assert await answer.content.readline() == b"second\n"
                assert await answer.content.read() == b"last\n"
            url = served.url("/containerLogs/default/pod/main?tailLines=2&timestamps=true")
            await served.pods.refresh()
            async with http.get(url, ssl=served.tls) as answer:
                lines = (await answer.text()).splitlines()
        assert [line.split(" ", 1)[1] for line in lines] == ["second", "last"]
        assert all(len(line.split(" ", 1)[0]) == len("2026-01-01T00:00:00.000000000Z") for line in lines)

    node.run(body, script="echo first; sleep 0.5; echo second; sleep 0.5; echo last")


def test_following_goes_on_in_the_new_file_after_rotation(node: Node) -> None:
    async def body(served: Served) -> None:
        path = served.logs / "default_pod_uid" / "main" / "0.log"
        async with aiohttp.ClientSession() as http:
            url = served.url("/containerLogs/default/pod/main?follow=true")
            async with http.get(url, ssl=served.tls) as answer:
                assert await answer.content.readline() == b"1\n"
                path.rename(path.with_suffix(".log.20260101-000000"))
                runtime, main = served.pods.client.runtime, served.pods.containers["main"]
                await runtime.reopen_container_log(main)
                async with asyncio.timeout(30):
                    while not (path.exists() and path.read_text()):
                        await asyncio.sleep(0.02)
                await runtime.exec_sync(main, ["touch", "/stop"])
                rest = (await answer.content.read()).split()
        assert rest == [b"%d" % number for number in range(2, len(rest) + 2)]
        assert path.read_text().splitlines()[-1].endswith(f" {len(rest) + 1}")

    node.run(body, script="i=0; until [ -e /stop ]; do i=$((i + 1)); echo $i; sleep 0.05; done")
