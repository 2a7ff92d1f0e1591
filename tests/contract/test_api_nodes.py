"""Requests that the server proxies to nodes, with a TLS listener on this host's own address as the node.

The node records every byte it gets, so that the tests see what passed and what must not have.
"""

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from control.storage import codec
from kube import pki
from tests.support.addresses import own_address
from tests.support.control import ApiUnderTest, api_server

PODS = "/api/v1/namespaces/default/pods"


class Node:
    """A listener in a node's place. `answer` is what it says to the next request's head, or a function that makes it."""

    def __init__(self) -> None:
        self.answer: bytes | Callable[[], bytes] = b""
        self.echo = False
        self.heads: list[bytes] = []
        self.received = b""
        self.peers: list[dict[str, object]] = []
        self.closed = asyncio.Event()
        self.port = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.peers.append(writer.get_extra_info("peercert"))
        try:
            self.heads.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer() if callable(self.answer) else self.answer)
            await writer.drain()
            while data := await reader.read(65536):
                self.received += data
                if self.echo:
                    writer.write(data.upper())
                    await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed.set()
            writer.close()


@contextlib.asynccontextmanager
async def cluster(
    directory: Path,
    address: str = "",
    user: str = "system:node:n",
    groups: tuple[str, ...] = ("system:nodes",),
    *,
    own_authority: bool = False,
) -> AsyncIterator[tuple[ApiUnderTest, Node]]:
    """Run a server and a node with a serving certificate of a user, of an authority of kubelets alone if `own_authority`.

    A pod `p` is on the node.
    """
    host = own_address()
    node = Node()
    now = datetime.now(UTC)
    kubelets = pki.new_ca("kubelets", now)
    kubelets.save(directory, "kubelets")
    changes: dict[str, Any] = {"kubelet_ca_file": directory / "kubelets.crt"} if own_authority else {}
    async with api_server(directory, **changes) as server:
        ca = kubelets if own_authority else server.keys.ca
        pki.issue(ca, user, groups, usages=(pki.SERVER,), sans=[host], now=now).save(directory, "node")
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "node.crt", directory / "node.key")
        context.load_verify_locations(directory / "pki" / "ca.crt")
        context.verify_mode = ssl.CERT_REQUIRED
        listener = await asyncio.start_server(node.serve, host, 0, ssl=context)
        node.port = listener.sockets[0].getsockname()[1]
        async with listener:
            await server.request(
                "POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}}
            )
            await server.request("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})
            status: dict[str, object] = {
                "addresses": [{"type": "InternalIP", "address": address or host}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port}},
            }
            await store_status(server, status)
            spec = {"nodeName": "n", "containers": [{"name": "c", "image": "x"}]}
            made = await server.request("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})
            assert made.status == 201, made.body
            yield server, node


async def store_status(server: ApiUnderTest, status: dict[str, object], key: str = "/registry/minions/n") -> None:
    """Put an object's status straight into the store, as something that got past validation."""
    item = await server.api.store.get(key)
    assert item is not None
    value = codec.encode({**codec.decode(item.value), "status": status})
    written = await server.api.store.update(item.key, value, item.revision)
    await server.api.cache.wait_fresh(written.revision)


async def connection(server: ApiUnderTest) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Open a bare TLS connection as the administrator."""
    context = server.tls("kubernetes-admin", ("system:masters",))
    return await asyncio.open_connection(
        "127.0.0.1", server.api.listener.port, ssl=context, server_hostname="127.0.0.1"
    )


def upgrade(path: str) -> bytes:
    return (
        (
            f"POST {path} HTTP/1.1\r\nHost: api\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
            "X-Stream-Protocol-Version: v4.channel.k8s.io\r\nAuthorization: Bearer secret\r\nContent-Length: 0\r\n\r\n"
        )
        .encode()
        .replace(b"Authorization: Bearer secret\r\n", b"")
    )


async def test_an_accepted_upgrade_is_a_pipe_in_both_directions(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\nearly"
        node.echo = True
        reader, writer = await connection(server)
        writer.write(upgrade(f"{PODS}/p/exec?command=ls&command=-l&stdin=true&stdout=true&tty=true"))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 ") and b"Upgrade: SPDY/3.1" in head
        assert await reader.readexactly(5) == b"early"
        large = b"x" * 3_000_000
        writer.write(large)
        assert await reader.readexactly(len(large)) == large.upper()
        first = node.heads[0].split(b"\r\n")[0]
        assert first == b"POST /exec/default/p/c?input=1&output=1&tty=1&command=ls&command=-l HTTP/1.1"
        assert b"x-stream-protocol-version: v4.channel.k8s.io" in node.heads[0].lower()
        names = dict(part[0] for part in node.peers[0]["subject"])  # type: ignore[attr-defined]
        assert names["commonName"] == "kube-apiserver-kubelet-client"
        writer.close()
        await node.closed.wait()


async def test_without_a_101_nothing_more_reaches_the_node(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = b"HTTP/1.1 403 Forbidden\r\nContent-Type: text/plain\r\nContent-Length: 6\r\n\r\nnot so"
        reader, writer = await connection(server)
        writer.write(upgrade(f"{PODS}/p/exec?command=id&stdout=1"))
        writer.write(b"GET /runningpods/ HTTP/1.1\r\nHost: node\r\n\r\n")
        answer = await reader.read(-1)
        assert answer.startswith(b"HTTP/1.1 403 ") and answer.endswith(b"not so")
        await node.closed.wait()
        assert len(node.heads) == 1 and node.received == b""


@pytest.mark.parametrize("end", [b"\n", b"\r"])
async def test_a_node_cannot_add_headers_to_a_refusal(tmp_path: Path, end: bytes) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = b"HTTP/1.1 403 Forbidden\r\nX-A: b" + end + b"Set-Cookie: c=d\r\nContent-Length: 0\r\n\r\n"
        for path in (f"{PODS}/p/exec?command=id&stdout=1", "/api/v1/nodes/n/proxy/pods"):
            reader, writer = await connection(server)
            writer.write(upgrade(path))
            answer = await reader.read(-1)
            assert answer.startswith(b"HTTP/1.1 502 ") and b"Set-Cookie" not in answer
            writer.close()
        plain = await server.request("GET", "/api/v1/nodes/n/proxy/pods")
        assert plain.status == 502 and "Set-Cookie" not in plain.headers


async def test_a_redirect_is_relayed_and_not_followed(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = b"HTTP/1.1 302 Found\r\nLocation: https://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
        reader, writer = await connection(server)
        writer.write(upgrade(f"{PODS}/p/attach?stdout=1"))
        answer = await reader.read(-1)
        assert answer.startswith(b"HTTP/1.1 302 ") and len(node.heads) == 1
        writer.close()


@pytest.mark.parametrize("address", ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "0.0.0.0", "::ffff:127.0.0.1"])
async def test_addresses_that_lead_back_to_the_server_are_refused(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path, address) as (server, node), asyncio.timeout(30):
        answer = await server.request("GET", f"{PODS}/p/log")
        assert answer.status == 400 and answer.json["message"] == "address not allowed"
        assert not node.heads


@pytest.mark.parametrize(
    ("user", "groups", "own_authority", "status"),
    [
        ("kube-apiserver", (), False, 500),
        ("system:node:other", ("system:nodes",), False, 500),
        ("system:node:n", (), False, 500),
        ("", ("system:nodes",), False, 500),
        ("system:node:n", ("system:nodes",), False, 200),
        ("n", (), True, 200),
    ],
)
async def test_a_peer_that_is_not_the_node_by_its_certificate_is_sent_nothing(
    tmp_path: Path, user: str, groups: tuple[str, ...], own_authority: bool, status: int
) -> None:
    """A Node may name the address of the API server, whose certificate is of the same authority, or another node's."""
    async with cluster(tmp_path, user=user, groups=groups, own_authority=own_authority) as (server, node):
        node.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"
        answer = await server.request("GET", "/api/v1/nodes/n/proxy/healthz")
        assert answer.status == status
        assert [bool(node.heads), b"certificate is not of system:node:n" in answer.body] == [
            status == 200,
            status == 500,
        ]


async def test_logs_are_streamed_as_they_come(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        node.answer = head + b"6\r\nhello \r\n5\r\nworld\r\n0\r\n\r\n"
        answer = await server.request("GET", f"{PODS}/p/log?tailLines=5&timestamps=true")
        assert answer.status == 200 and answer.body == b"hello world"
        assert answer.headers["Content-Type"] == "text/plain"
        assert node.heads[0].startswith(b"GET /containerLogs/default/p/c?timestamps=true&tailLines=5 HTTP/1.1")


@pytest.mark.parametrize("path", ["/logs/", "/logs/apt/", "/logs/syslog?x=y", "/logs", "/"])
async def test_the_path_is_proxied_unchanged_to_the_nodes_agent(tmp_path: Path, path: str) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        node.answer = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
        answer = await server.request("GET", f"/api/v1/nodes/n/proxy{path}")
        assert answer.status == 200 and answer.body == b"ok"
        assert node.heads[0].startswith(f"GET {path} HTTP/1.1".encode())


async def test_an_error_of_the_node_is_returned_as_a_status(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        text = b'container "c" in pod "p" is waiting to start: ContainerCreating'
        node.answer = b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)
        answer = await server.request("GET", f"{PODS}/p/log")
        assert answer.status == 400 and answer.json["reason"] == "BadRequest"
        assert answer.json["message"] == text.decode()
        bad = await server.request("GET", f"{PODS}/p/log?tailLines=-1")
        assert bad.status == 422 and "must be greater than or equal to 0" in bad.json["message"]


async def test_a_node_that_does_not_answer_is_an_error(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, _), asyncio.timeout(30):
        headers = {"Content-Type": "application/merge-patch+json"}
        endpoint = {"status": {"daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}}
        await server.request("PATCH", "/api/v1/nodes/n/status", endpoint, headers=headers)
        answer = await server.request("GET", f"{PODS}/p/log")
        assert answer.status == 500 and answer.json["message"].startswith("error dialing backend: dial tcp ")
        assert "refused" in answer.json["message"]


async def test_exec_that_wants_no_stream_or_no_upgrade_is_refused(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        answer = await server.request("POST", f"{PODS}/p/exec?command=id")
        assert answer.json["message"] == "you must specify at least 1 of stdin, stdout, stderr"
        answer = await server.request("POST", f"{PODS}/p/exec?command=id&stdout=1")
        assert answer.status == 400 and answer.json["message"] == "Upgrade request required"
        answer = await server.request("POST", f"{PODS}/p/exec?command=id&stdout=1&container=z")
        assert answer.json["message"] == "container z is not valid for pod p"
        for option in ("up grade", "xupgrade"):
            headers = {"Connection": option, "Upgrade": "websocket"}
            answer = await server.request("POST", f"{PODS}/p/exec?command=id&stdout=1", headers=headers)
            assert answer.status == 400 and answer.json["message"] == "Upgrade request required"
        assert not node.heads


async def test_a_service_is_reached_through_the_server(tmp_path: Path) -> None:
    host, requested = own_address(), []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 5\r\n\r\nhello")
        await writer.drain()
        writer.close()

    backend = await asyncio.start_server(answer, host, 0)
    port = backend.sockets[0].getsockname()[1]
    services = "/api/v1/namespaces/default/services"
    async with backend, api_server(tmp_path) as server, asyncio.timeout(30):
        await server.request("POST", services, {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
        empty = await server.request("GET", f"{services}/web/proxy/")
        assert empty.status == 503 and empty.json["message"] == 'no endpoints available for service "web"'
        endpoints = {
            "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}],
        }
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
        assert (await server.request("POST", slices, endpoints)).status == 201
        refused = await server.request("GET", f"{services}/web:80/proxy/")
        assert refused.status == 503, "the address is no pod's"
        await server.request("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
        spec = {"containers": [{"name": "c", "image": "x"}]}
        assert (await server.request("POST", PODS, {"metadata": {"name": "p"}, "spec": spec})).status == 201
        await store_status(server, {"podIP": host, "podIPs": [{"ip": host}]}, "/registry/pods/default/p")
        endpoints["endpoints"][0]["targetRef"] = {"kind": "Pod", "namespace": "default", "name": "p"}  # type: ignore[index]
        assert (await server.request("PUT", f"{slices}/web-1", endpoints)).status == 200
        found = await server.request("GET", f"{services}/web:80/proxy/a%20b?x=y", headers={"Authorization": "Basic no"})
        assert found.status == 200 and found.body == b"hello" and found.headers["Content-Type"] == "text/html"
        assert requested[0].startswith(b"GET /a%20b?x=y HTTP/1.1\r\n") and b"basic" not in requested[0].lower()
        assert (await server.request("GET", f"{services}/web:81/proxy/")).status == 503


async def test_an_external_name_is_never_dialled(tmp_path: Path) -> None:
    host, requested = own_address(), []
    backend = await asyncio.start_server(lambda reader, writer: requested.append(writer), host, 0)
    port = backend.sockets[0].getsockname()[1]
    services = "/api/v1/namespaces/default/services"
    async with backend, api_server(tmp_path) as server, asyncio.timeout(30):
        for name, external in (("byip", host), ("byname", "localhost")):
            spec = {"type": "ExternalName", "externalName": external, "ports": [{"port": port}]}
            assert (await server.request("POST", services, {"metadata": {"name": name}, "spec": spec})).status == 201
            for place in (
                name,
                f"{name}:{port}",
                f"https:{name}:{port}",
                f"{name}:x",
                f"{name}:99999999",
                f"{name}:%C2%B2",
            ):
                answer = await server.request("GET", f"{services}/{place}/proxy/")
                assert answer.status == 503, (place, answer.body)
        assert requested == []


@pytest.mark.parametrize("port", ["x", "0", "65536", "99999999", "-1", "%C2%B2", "%D9%A1", "+80", "1_0"])
async def test_a_port_that_is_none_is_a_bad_request(tmp_path: Path, port: str) -> None:
    async with cluster(tmp_path) as (server, _), asyncio.timeout(30):
        await store_status(server, {"podIP": own_address()}, "/registry/pods/default/p")
        for path in (f"{PODS}/p:{port}/proxy/", f"/api/v1/nodes/n:{port}/proxy/"):
            answer = await server.request("GET", path)
            assert (answer.status, answer.json["reason"]) == (400, "BadRequest"), path
            assert answer.json["message"].startswith("invalid port ")


ELSEWHERE = ["127.0.0.1", "169.254.169.254", "::1", "fe80::1", "::ffff:127.0.0.1", "0.0.0.0", "224.0.0.1", "::", ""]


@pytest.mark.parametrize("address", ELSEWHERE)
async def test_a_pods_address_that_no_pod_can_have_is_not_dialled(tmp_path: Path, address: str) -> None:
    async with cluster(tmp_path) as (server, _), asyncio.timeout(30):
        await store_status(server, {"podIP": address, "podIPs": [{"ip": address}]}, "/registry/pods/default/p")
        answer = await server.request("GET", f"{PODS}/p:{server.api.listener.port}/proxy/healthz")
        assert (answer.status, answer.json["message"]) == (400, "address not allowed")


async def test_a_log_is_streamed_over_a_requested_websocket(tmp_path: Path) -> None:
    async with cluster(tmp_path) as (server, node), asyncio.timeout(30):
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n"
        node.answer = head + b"6\r\nhello\n\r\n6\r\nworld\n\r\n0\r\n\r\n"
        url = f"https://127.0.0.1:{server.api.listener.port}{PODS}/p/log"
        tls = server.tls("kubernetes-admin", ("system:masters",))
        async with aiohttp.ClientSession() as session:
            for offered, kind in ((["binary.k8s.io"], bytes), ([], bytes), (["x", "base64.binary.k8s.io"], str)):
                async with session.ws_connect(url, ssl=tls, protocols=offered) as socket:
                    assert socket.protocol == (offered[-1] if offered else None)
                    output = [message.data async for message in socket]
                    assert all(isinstance(part, kind) for part in output)
                    plain = [base64.b64decode(part) if isinstance(part, str) else part for part in output]
                    assert b"".join(plain) == b"hello\nworld\n" and socket.close_code == 1000
            with pytest.raises(aiohttp.WSServerHandshakeError, match="400"):
                await session.ws_connect(url, ssl=tls, protocols=["v4.channel.k8s.io"])
        assert len(node.heads) == 3, "the node was asked for a log that nobody gets"


async def test_a_page_behind_the_proxy_leads_through_it_by_every_method(tmp_path: Path) -> None:
    host, requested = own_address(), []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requested.append(await reader.readuntil(b"\r\n\r\n"))
        page = b'<a href="/next?x=1&amp;y">n</a><img src="logo.png"><a href="https://elsewhere/x">e</a>'
        head = b"HTTP/1.1 302 Found\r\nLocation: /moved/\r\n" if b"/old" in requested[-1] else b"HTTP/1.1 200 OK\r\n"
        writer.write(head + b"Content-Type: text/html\r\nContent-Length: %d\r\n\r\n" % len(page))
        writer.write(b"" if requested[-1].startswith(b"HEAD") else page)
        await writer.drain()
        writer.close()

    backend = await asyncio.start_server(answer, host, 0)
    port = backend.sockets[0].getsockname()[1]
    async with cluster(tmp_path) as (server, _), backend, asyncio.timeout(30):
        status = {"status": {"podIP": host, "podIPs": [{"ip": host}], "phase": "Running"}}
        merge = {"Content-Type": "application/merge-patch+json"}
        assert (await server.request("PATCH", f"{PODS}/p/status", status, headers=merge)).status == 200
        proxy = f"{PODS}/p:{port}/proxy"
        page = await server.request("GET", f"{proxy}/")
        assert page.body == (
            f'<a href="{proxy}/next?x=1&amp;y">n</a><img src="logo.png"><a href="https://elsewhere/x">e</a>'.encode()
        )
        moved = await server.request("GET", f"{proxy}/old")
        assert (moved.status, moved.headers["Location"]) == (302, f"{proxy}/moved/")
        for method in ("GET", "HEAD"):
            moved = await server.request(method, f"{proxy}?a=b")
            assert (moved.status, moved.headers["Location"]) == (301, f"{proxy}/?a=b")
        for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
            assert (await server.request(method, f"{proxy}/some/path")).status == 200
            assert requested[-1].startswith(f"{method} /some/path HTTP/1.1".encode())
