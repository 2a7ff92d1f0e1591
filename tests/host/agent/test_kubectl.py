"""A real kubectl against the kubelet's API: behind a front that answers for the pod and joins upgraded connections.

The front stands for an API server: it turns the API's paths and parameters into the kubelet's and copies bytes.
"""

import asyncio
import fcntl
import json
import os
import pty
import ssl
import struct
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from agent.streaming.upgrade import Stream, splice
from tests.host.agent.conftest import Node, Served

_RENAMED = {"stdin": "input", "stdout": "output", "stderr": "error", "ports": "port"}


class Front:
    """An API server that knows one pod."""

    def __init__(self, served: Served) -> None:
        self._served = served
        self.upgrades: list[str] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = Stream(reader, writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError):
            await client.close()
            return
        first, *lines = head.rstrip("\r\n").split("\r\n")
        method, target, _ = first.split(" ")
        url = urlsplit(target)
        *_, name = url.path.split("/")
        if name in ("exec", "attach", "portforward", "log"):
            await self._forward(client, method, name, url.query, lines)
            return
        body = json.dumps(_answer(url.path)).encode()
        status = "404 Not Found" if b'"Failure"' in body else "200 OK"
        head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await client.close()

    async def _forward(self, client: Stream, method: str, name: str, query: str, lines: list[str]) -> None:
        pairs = dict.fromkeys(parse_qsl(query))
        container = next((value for key, value in pairs if key == "container"), "main")
        wanted = urlencode([(_RENAMED.get(k, k), "1" if v == "true" else v) for k, v in parse_qsl(query)])
        kind = {"portforward": "portForward", "log": "containerLogs"}.get(name, name)
        tail = "" if name == "portforward" else f"/{container}"
        self.upgrades += [line.partition(":")[2].strip() for line in lines if line.lower().startswith("upgrade:")]
        backend = Stream(*await asyncio.open_connection("127.0.0.1", self._served.port, ssl=self._served.tls))
        request = [f"{method} /{kind}/default/pod{tail}?{wanted} HTTP/1.1", *lines, "", ""]
        backend.writer.write("\r\n".join(request).encode("latin-1"))
        await splice(client, backend)


def _answer(path: str) -> dict[str, object]:
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": []}
    if path == "/api/v1":
        pods = {"name": "pods", "singularName": "pod", "namespaced": True, "kind": "Pod", "verbs": ["get"]}
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [pods]}
    if path == "/api/v1/namespaces/default/pods/pod":
        containers = [{"name": "main", "image": "busybox", "stdin": True}, {"name": "web", "image": "busybox"}]
        return {
            "kind": "Pod",
            "apiVersion": "v1",
            "metadata": {"name": "pod", "namespace": "default", "uid": "uid"},
            "spec": {"containers": containers},
            "status": {"phase": "Running"},
        }
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": 404,
        "reason": "NotFound",
        "message": path,
    }


Kubectl = Callable[..., Awaitable[tuple[int, str, str]]]


def _run(node: Node, body: Callable[[Kubectl, Front, Path], Awaitable[None]], script: str = "cat") -> None:
    async def inside(served: Served) -> None:
        front = Front(served)
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(served.folder / "server.crt", served.folder / "server.key")
        server = await asyncio.start_server(front.handle, "127.0.0.1", 0, ssl=tls)
        port = server.sockets[0].getsockname()[1]
        config = served.folder / "kubeconfig"
        config.write_text(
            json.dumps(
                {
                    "kind": "Config",
                    "apiVersion": "v1",
                    "clusters": [
                        {
                            "name": "c",
                            "cluster": {
                                "server": f"https://127.0.0.1:{port}",
                                "certificate-authority": str(served.folder / "ca.crt"),
                            },
                        }
                    ],
                    "users": [{"name": "u", "user": {"token": "t"}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )

        async def kubectl(*arguments: str, stdin: bytes = b"", spdy: bool = False) -> tuple[int, str, str]:
            off = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false", "KUBECTL_PORT_FORWARD_WEBSOCKETS": "false"}
            process = await asyncio.create_subprocess_exec(
                "kubectl",
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**os.environ, "KUBECONFIG": str(config), "HOME": str(served.folder), **(off if spdy else {})},
            )
            try:
                out, err = await asyncio.wait_for(process.communicate(stdin), 60)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
            return process.returncode or 0, out.decode(), err.decode()

        async with server:
            await body(kubectl, front, config)

    node.run(inside, script)


@pytest.mark.parametrize("spdy", [False, True], ids=["websocket", "spdy"])
def test_exec_gives_outputs_and_exit_code(node: Node, spdy: bool) -> None:
    async def body(kubectl: Kubectl, front: Front, _: Path) -> None:
        script = "echo out; echo err >&2; exit 5"
        code, out, err = await kubectl("exec", "pod", "-c", "main", "--", "sh", "-c", script, spdy=spdy)
        assert (code, out) == (5, "out\n")
        assert err == "err\ncommand terminated with exit code 5\n"
        assert front.upgrades == ["SPDY/3.1" if spdy else "websocket"]

    _run(node, body)


@pytest.mark.parametrize("spdy", [False, True], ids=["websocket", "spdy"])
def test_exec_passes_input_and_its_end(node: Node, spdy: bool) -> None:
    async def body(kubectl: Kubectl, front: Front, _: Path) -> None:
        data = b"line\n" * 100_000
        code, out, err = await kubectl("exec", "-i", "pod", "-c", "main", "--", "wc", "-l", stdin=data, spdy=spdy)
        assert (code, out.strip(), err) == (0, "100000", "")

    _run(node, body)


def test_exec_in_a_container_that_does_not_run_is_an_error(node: Node) -> None:
    async def body(kubectl: Kubectl, front: Front, _: Path) -> None:
        code, _out, err = await kubectl("exec", "pod", "-c", "main", "--", "true")
        assert code == 1
        assert 'container not found ("main")' in err

    async def ended(kubectl: Kubectl, front: Front, folder: Path) -> None:
        async with asyncio.timeout(60):
            while True:
                await front._served.pods.refresh()
                if front._served.pods.seen.running("main") is None:
                    break
                await asyncio.sleep(0.02)
        await body(kubectl, front, folder)

    _run(node, ended, script="exit 0")


def test_attach_passes_input_and_output(node: Node) -> None:
    async def body(kubectl: Kubectl, front: Front, _: Path) -> None:
        code, out, err = await kubectl("attach", "-i", "pod", "-c", "main", stdin=b"hello\n")
        assert (code, out) == (0, "got hello\n"), err

    _run(node, body, script="read word; echo got $word; exit 0")


def test_logs_are_shown(node: Node) -> None:
    async def body(kubectl: Kubectl, front: Front, _: Path) -> None:
        code, out, err = await kubectl("logs", "-f", "pod", "-c", "main")
        assert (code, out, err) == (0, "one\ntwo\n", "")

    _run(node, body, script="echo one; sleep 0.3; echo two")


@pytest.mark.parametrize("spdy", [False, True], ids=["websocket", "spdy"])
def test_a_port_is_forwarded_for_several_connections(node: Node, spdy: bool) -> None:
    async def body(_: Kubectl, front: Front, config: Path) -> None:
        off = {"KUBECTL_PORT_FORWARD_WEBSOCKETS": "false" if spdy else "true"}
        process = await asyncio.create_subprocess_exec(
            "kubectl",
            "port-forward",
            "pod/pod",
            ":8080",
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, "KUBECONFIG": str(config), "HOME": str(config.parent), **off},
        )
        try:
            assert process.stdout is not None
            line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
            port = int(line.split("127.0.0.1:")[1].split()[0])
            for _attempt in range(3):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                answer = await asyncio.wait_for(reader.read(), 60)
                writer.close()
                assert answer.endswith(b"served\n")
            assert front.upgrades == ["SPDY/3.1" if spdy else "websocket"]
        finally:
            process.terminate()
            await process.wait()

    _run(node, body)


@pytest.mark.parametrize("spdy", [False, True], ids=["websocket", "spdy"])
def test_an_interactive_shell_has_a_terminal_of_the_right_size(node: Node, spdy: bool) -> None:
    async def body(_: Kubectl, front: Front, config: Path) -> None:
        master, slave = pty.openpty()
        os.set_blocking(master, False)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
        off = {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": "false" if spdy else "true", "TERM": "dumb"}
        process = await asyncio.create_subprocess_exec(
            *("kubectl", "exec", "-it", "pod", "-c", "main", "--", "sh"),
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**os.environ, "KUBECONFIG": str(config), "HOME": str(config.parent), **off},
            start_new_session=True,
        )
        os.close(slave)
        screen = bytearray()
        try:
            await _until(master, screen, b"#")
            # The size is sent right after the start; the shell may be there before it.
            command = b"while [ \"$(stty size)\" != '33 77' ]; do sleep 0.1; done; echo size is $(stty size); exit 6\n"
            os.write(master, command)
            await _until(master, screen, b"size is 33 77")
            assert await asyncio.wait_for(process.wait(), 60) == 6
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            os.close(master)

    _run(node, body)


async def _until(master: int, screen: bytearray, text: bytes) -> None:
    """Read from a terminal until it shows a text."""
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(60):
        while text not in screen:
            ready = asyncio.Event()
            loop.add_reader(master, ready.set)
            await ready.wait()
            loop.remove_reader(master)
            screen += os.read(master, 4096)
