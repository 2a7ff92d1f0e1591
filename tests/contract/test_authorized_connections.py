"""Requests that run something in a container are authorized as `create`, in every spelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.contract.test_api_nodes import Node, cluster
from tests.contract.test_auth import created
from tests.support.control import ApiUnderTest

RBAC = "/apis/rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"
NODE = "/api/v1/nodes/n/proxy"
POD = "/api/v1/namespaces/default/pods/p"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
SOCKET = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: YWFhYWFhYWFhYWFhYWFhYQ==")
USERS = {"reader": ["get"], "maker": ["create"], "both": ["get", "create"]}
COMMAND = "?command=id&stdout=1&output=1"


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[tuple[ApiUnderTest, Node]]:
    async with cluster(tmp_path) as (api, node), asyncio.timeout(120):
        for user, verbs in USERS.items():
            resources = ["nodes/proxy", "pods/exec", "pods/attach", "pods/portforward"]
            rule = {"apiGroups": [""], "resources": resources, "verbs": verbs}
            await created(api, f"{RBAC}/clusterroles", {"metadata": {"name": user}, "rules": [rule]})
            ref = {"apiGroup": GROUP, "kind": "ClusterRole", "name": user}
            subject = {"apiGroup": GROUP, "kind": "User", "name": user}
            binding = {"metadata": {"name": user}, "roleRef": ref, "subjects": [subject]}
            await created(api, f"{RBAC}/clusterrolebindings", binding)
        node.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
        await until_ok(api, node)
        node.heads.clear()
        yield api, node


async def until_ok(api: ApiUnderTest, node: Node) -> None:
    """Wait until the authorizer knows the roles."""
    for user, method in (("reader", "GET"), ("maker", "POST"), ("both", "POST")):
        while (await api.request(method, f"{NODE}/stats/summary", user=(user, ()))).status == 403:
            await asyncio.sleep(0.01)


async def spoken(api: ApiUnderTest, user: str, method: str, path: str, *headers: str, version: str = "1.1") -> bytes:
    """Send a request as it stands and return the answer's first line."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", api.api.listener.port, ssl=api.tls(user), server_hostname="127.0.0.1"
    )
    try:
        head = "\r\n".join((f"{method} {path} HTTP/{version}", "Host: api", *headers, "", ""))
        writer.write(head.encode())
        async with asyncio.timeout(20):
            return (await reader.readuntil(b"\r\n")).strip()
    finally:
        writer.close()


SPELLINGS = [
    f"{NODE}/exec/default/p/c{COMMAND}",
    f"{NODE}//exec//default/p/c{COMMAND}",
    f"{NODE}/%65xec/default/p/c{COMMAND}",
    f"{NODE}/exec%2fdefault%2Fp/c{COMMAND}",
    f"{NODE}/%2fexec/default/p/c{COMMAND}",
    f"{NODE}/EXEC/default/p/c{COMMAND}",
    f"//api/v1//nodes/n/proxy/exec/default/p/c{COMMAND}",
    f"/api/v1/nodes/n:PORT/proxy/exec/default/p/c{COMMAND}",
    f"/api/v1/nodes/https:n:/proxy/exec/default/p/c{COMMAND}",
    f"{NODE}/attach/default/p/c{COMMAND}",
    f"{NODE}/portForward/default/p?port=80",
    f"{NODE}/run/default/p/c?cmd=id",
    f"{NODE}/cri/exec/token",
]
UPGRADES = [
    SOCKET,
    tuple(header.upper() for header in SOCKET),
    ("connection: keep-alive, UPGRADE", "upgrade: WebSocket", SOCKET[2]),
    ("Connection: keep-alive", "Connection: Upgrade", *SOCKET[1:]),
    ("Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"),
    ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__"),
]


async def test_reading_a_node_is_not_enough_to_run_something_on_it(served: tuple[ApiUnderTest, Node]) -> None:
    api, node = served
    node.answer = SWITCHED
    for path in SPELLINGS:
        for headers in ((), SOCKET):
            line = await spoken(api, "reader", "GET", path.replace("PORT", str(node.port)), *headers)
            assert b" 403 " in line, (path, headers)
    for dots in ("./exec", "x/../exec", "%2e/exec", "x/%2e%2e/exec", "./%2fexec"):
        line = await spoken(api, "reader", "GET", f"{NODE}/{dots}/default/p/c{COMMAND}")
        assert b" 400 " in line, dots
    assert node.heads == [], "nothing reaches the node"


async def test_upgrades_are_authorized_in_every_form(served: tuple[ApiUnderTest, Node]) -> None:
    api, node = served
    node.answer = SWITCHED
    for headers in UPGRADES:
        for version in ("1.0", "1.1"):
            for path in (SPELLINGS[0], f"{NODE}/pods"):
                line = await spoken(api, "reader", "GET", path, *headers, version=version)
                assert b" 101 " not in line, (path, headers, version)
    for head in node.heads:
        assert b"upgrade:" not in head.lower() and not head.startswith(b"GET /exec"), head


async def test_who_may_read_and_create_connects(served: tuple[ApiUnderTest, Node]) -> None:
    api, node = served
    node.answer = SWITCHED
    assert b" 101 " in await spoken(api, "both", "GET", SPELLINGS[0], *SOCKET)
    assert b" 101 " in await spoken(api, "maker", "POST", SPELLINGS[0], *SOCKET)
    assert b" 403 " in await spoken(api, "maker", "GET", SPELLINGS[0], *SOCKET)
    assert [head.split(b" ")[:2] for head in node.heads] == [
        [b"GET", f"/exec/default/p/c{COMMAND}".encode()],
        [b"POST", f"/exec/default/p/c{COMMAND}".encode()],
    ]


async def test_reading_a_node_reads(served: tuple[ApiUnderTest, Node]) -> None:
    api, _ = served
    for path in ("/stats/summary", "/pods", "/containerLogs/default/p/exec", "/executions"):
        assert b" 200 " in await spoken(api, "reader", "GET", NODE + path, "Connection: close"), path


@pytest.mark.parametrize("what", [f"exec{COMMAND}", "attach?stdout=1", "portforward?ports=80"])
async def test_a_connection_to_a_pod_by_get_needs_both_verbs(served: tuple[ApiUnderTest, Node], what: str) -> None:
    api, node = served
    node.answer = SWITCHED
    reported = f'cannot create resource "pods/{what.partition("?")[0]}"'
    refused = await api.request("GET", f"{POD}/{what}", user=("reader", ()))
    assert refused.status == 403 and reported in refused.json["message"]
    assert b" 403 " in await spoken(api, "reader", "GET", f"{POD}/{what}", *SOCKET)
    assert b" 403 " in await spoken(api, "maker", "GET", f"{POD}/{what}", *SOCKET)
    assert node.heads == []
    assert b" 101 " in await spoken(api, "both", "GET", f"{POD}/{what}", *SOCKET)
    assert b" 101 " in await spoken(api, "maker", "POST", f"{POD}/{what}", *SOCKET)
