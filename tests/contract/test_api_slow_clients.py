"""Clients that send slowly, or read nothing: limits of the API server, and clients that these do not affect."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from control.http.pieces import Pieces
from control.server.request_body import RequestBody
from kube import serialize
from kube.api import core_v1, meta_v1
from kube.serving.limits import ServingLimits
from tests.support.control import ADMIN, ApiUnderTest, api_server
from tests.support.slow_clients import RawClient

OBJECTS, SIZE = 40, 500_000
MAPS = "/api/v1/namespaces/default/configmaps"
LIMITS = ServingLimits(send_timeout=0.6, idle_timeout=2.0)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path, serving=LIMITS, request_timeout=1.0) as made:
        yield made


@pytest.fixture
async def full(server: ApiUnderTest) -> ApiUnderTest:
    """A server with more ConfigMaps than the kernel takes for a client that reads nothing."""
    # Past the API: the process that takes large objects may take longer to start than a request has here.
    for number in range(OBJECTS):
        meta = meta_v1.ObjectMeta(name=f"object-{number}", namespace="default", uid=f"uid-{number}")
        made = core_v1.ConfigMap(kind="ConfigMap", api_version="v1", metadata=meta, data={"key": "x" * SIZE})
        await server.api.store.create(f"/registry/configmaps/default/{meta.name}", serialize.encode(made))
    return server


async def connect(server: ApiUnderTest, request: str, user: tuple[str, tuple[str, ...]] | None = ADMIN) -> RawClient:
    tls = server.tls(*user) if user else server.tls()
    client = await RawClient.connect(server.api.listener.port, tls)
    await client.send(f"{request} HTTP/1.1\r\nHost: x\r\n".encode())
    return client


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not true():
            await asyncio.sleep(0.02)


def watches(server: ApiUnderTest) -> int:
    return sum(server.api.pipeline.metrics.long_running.values())


@pytest.mark.parametrize("query", ["?watch=1&resourceVersion=0", ""])
async def test_what_is_not_read_ends_in_time(full: ApiUnderTest, query: str) -> None:
    table = full.api.listener.table
    client = await connect(full, f"GET {MAPS}{query}")
    await client.send(b"\r\n")
    await client.head()
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await until(lambda: table.buffered_bytes > 0)
    await until(lambda: table.buffered_bytes == 0)
    await until(lambda: watches(full) == 0)
    await until(lambda: len(table) <= 1)  # the one that made the objects
    assert table.closed == 0  # it had its time; nothing was short of room
    client.close()


async def test_what_is_held_for_those_who_do_not_read_has_a_limit_in_all(full: ApiUnderTest) -> None:
    table = full.api.listener.table
    table._answers.limit = 2 * OBJECTS * SIZE
    clients = []
    for _ in range(8):
        client = await connect(full, f"GET {MAPS}")
        await client.send(b"\r\n")
        await client.head()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        clients.append(client)
        assert table.buffered_bytes <= 2 * OBJECTS * SIZE
    await until(lambda: table.closed >= 1)
    assert table.buffered_bytes <= 2 * OBJECTS * SIZE
    for client in clients:
        client.close()


async def test_an_idle_watch_stays_open(server: ApiUnderTest) -> None:
    client = await connect(server, f"GET {MAPS}?watch=1")
    await client.send(b"\r\n")
    await client.head()
    await asyncio.sleep(4 * LIMITS.send_timeout)
    meta = meta_v1.ObjectMeta(name="late", namespace="default")
    await server.client().create(core_v1.ConfigMap(metadata=meta))
    async with asyncio.timeout(20):
        assert b'"late"' in await client.reader.readuntil(b"}\n")
    client.close()


async def test_a_large_list_is_whole_and_so_is_what_comes_after_it(full: ApiUnderTest) -> None:
    for _ in range(2):
        answer = await full.request("GET", MAPS, headers={"Accept-Encoding": "identity"})
        assert len(answer.body) == int(answer.headers["Content-Length"]) > OBJECTS * SIZE
        assert len(json.loads(answer.body)["items"]) == OBJECTS
    answer = await full.request("HEAD", MAPS, headers={"Accept-Encoding": "identity"})
    assert (answer.status, answer.body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > OBJECTS * SIZE


@pytest.mark.parametrize("query", ["", "?pretty=true"])
@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_large_list_is_never_joined(
    full: ApiUnderTest, monkeypatch: pytest.MonkeyPatch, query: str, encoding: str
) -> None:
    joined = list[int]()
    monkeypatch.setattr(Pieces, "whole", lambda self: joined.append(len(self)))
    monkeypatch.setattr(Pieces, "gathered", lambda self: joined.append(len(self)))
    # The process that writes lists with line breaks may have to start.
    full.api.pipeline.config = msgspec.structs.replace(full.api.pipeline.config, request_timeout=30.0)
    answer = await full.request("GET", MAPS + query, headers={"Accept-Encoding": encoding})
    assert len(answer.json["items"]) == OBJECTS and joined == []
    assert all(item["data"] == {"key": "x" * SIZE} for item in answer.json["items"])


async def test_a_watch_shows_large_objects_whole(full: ApiUnderTest) -> None:
    client = await connect(full, f"GET {MAPS}?watch=1&resourceVersion=0&timeoutSeconds=1")
    await client.send(b"Connection: close\r\n\r\n")
    await client.head()
    lines = _unchunked(await client.rest()).splitlines()
    found = [json.loads(line) for line in lines]
    assert {each["object"]["metadata"]["name"] for each in found} == {f"object-{n}" for n in range(OBJECTS)}
    assert all(len(each["object"]["data"]["key"]) == SIZE for each in found)


def _unchunked(data: bytes) -> bytes:
    found = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        found, data = found + data[: int(size, 16)], data[int(size, 16) + 2 :]
    return found


async def test_a_body_that_does_not_come_is_a_timeout(server: ApiUnderTest) -> None:
    client = await connect(server, f"POST {MAPS}")
    await client.send(b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n{")
    answer = await client.rest()
    assert answer.startswith(b"HTTP/1.1 504 ")
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["reason"] == "Timeout"


async def test_the_body_of_a_request_that_may_take_for_ever_has_a_limit_too() -> None:
    async def never() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    body = RequestBody({b"content-length": b"10"}, never, None, 0.05)
    async with asyncio.timeout(10):
        with pytest.raises(TimeoutError):
            await body.read(1000)


async def test_who_is_known_is_safe_from_floods_and_who_is_nobody_is_not(server: ApiUnderTest) -> None:
    table = server.api.listener.table
    client = server.client()
    await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="me", namespace="default")))
    answer = await server.request("POST", "/api/v1/namespaces/default/serviceaccounts/me/token", {"spec": {}})
    token = answer.json["status"]["token"]
    before = table.authenticated
    nobody = await connect(server, "GET /livez", None)
    await nobody.send(b"\r\n")
    assert (await nobody.head()).startswith(b"HTTP/1.1 200 ")
    refused = await connect(server, f"GET {MAPS}", None)
    await refused.send(b"Authorization: Bearer x\r\n\r\n")
    assert (await refused.head()).startswith(b"HTTP/1.1 401 ")
    assert (table.authenticated, table.unauthenticated) == (before, 2)
    somebody = await connect(server, f"GET {MAPS}", None)
    await somebody.send(f"Authorization: Bearer {token}\r\n\r\n".encode())
    assert (await somebody.head()).startswith(b"HTTP/1.1 403 ")
    assert (table.authenticated, table.unauthenticated) == (before + 1, 2)
    # While a body is on its way, too: it is read once it is known whose it is.
    slow = await connect(server, f"POST {MAPS}", None)
    await slow.send(f"Authorization: Bearer {token}\r\nContent-Length: 10\r\n\r\n".encode())
    await asyncio.sleep(0.2)
    for each in (nobody, refused, somebody, slow):
        each.close()


async def test_a_head_over_the_limit_is_refused_by_the_api_server(server: ApiUnderTest) -> None:
    client = await connect(server, "GET /livez", None)
    await client.send(b"A: b\r\n" * (ServingLimits().headers + 1) + b"\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 431 ")


async def test_a_target_over_the_limit_is_refused_by_the_api_server(server: ApiUnderTest) -> None:
    client = await connect(server, f"GET /{'x' * ServingLimits().line_bytes}", None)
    await client.send(b"\r\n")
    assert (await client.rest()).startswith(b"HTTP/1.1 414 ")


@pytest.mark.parametrize(
    ("path", "user", "status"),
    [
        ("/livez", None, 200),
        (MAPS, None, 401),
        (f"{MAPS}?watch=1", None, 401),
        (MAPS, ("nobody", ()), 403),
        (MAPS, ADMIN, 200),
        (f"{MAPS}/none", ADMIN, 404),
        (f"{MAPS}?limit=x", ADMIN, 400),
        (f"{MAPS}?watch=1&timeoutSeconds=1", ADMIN, 200),
        ("/none", ADMIN, 404),
    ],
)
async def test_a_request_that_is_over_leaves_nothing_for_the_garbage_collector(
    server: ApiUnderTest, path: str, user: tuple[str, tuple[str, ...]] | None, status: int
) -> None:
    """Objects that wait for the collector are as large as requests: a flood of large heads would fill the memory."""

    async def ask() -> None:
        client = await connect(server, f"GET {path}", user)
        await client.send(b"Connection: close\r\n\r\n")
        assert (await client.rest()).startswith(f"HTTP/1.1 {status} ".encode())
        client.close()
        await asyncio.sleep(0.05)

    await ask()  # what is made the first time alone
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            await ask()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
    assert left.isdisjoint({"Request", "ApiProtocol", "RequestResponseCycle", "RequestBody"})


# -- bodies of which the rest does not come ---------------------------------------------------------------------------
EVE, BOB = ("eve", ("system:masters",)), ("bob", ())


async def incomplete(server: ApiUnderTest, user: tuple[str, tuple[str, ...]], body: bytes) -> RawClient:
    client = await connect(server, f"POST {MAPS}", user)
    length = f"Content-Type: application/json\r\nContent-Length: {len(body) + 1}\r\n\r\n"
    await client.send(length.encode() + body)
    return client


async def test_incomplete_bodies_hold_no_seats(tmp_path: Path) -> None:
    async with api_server(tmp_path, max_readonly_in_flight=6, max_mutating_in_flight=6) as server:
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"}
        eve = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "eve"}
        made = {"metadata": {"name": "eve"}, "roleRef": role, "subjects": [eve, {**eve, "name": "bob"}]}
        path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings"
        assert (await server.request("POST", path, made)).status == 201
        clients = [await incomplete(server, ("eve", ()), b"{") for _ in range(40)]
        await until(lambda: server.api.listener.table.buffered_bytes == 40)
        async with asyncio.timeout(5):
            assert (await server.request("GET", MAPS, user=BOB)).status == 200
        assert not any(level.executing for level in server.api.pipeline.fairness.levels.values() if not level.exempt)
        await clients[0].send(b"}")
        assert (await clients[0].head()).startswith(b"HTTP/1.1 422 ")
        for client in clients:
            client.close()
        await until(lambda: server.api.listener.table.buffered_bytes == 0)


async def test_incomplete_bodies_of_one_user_have_a_limit(tmp_path: Path) -> None:
    limits = ServingLimits(unread_bytes=800_000)
    async with api_server(tmp_path, serving=limits) as server:
        table = server.api.listener.table
        clients = [await incomplete(server, EVE, b" " * 60_000) for _ in range(5)]
        other = await incomplete(server, ADMIN, b'{"metadata": {"name": "other"}')
        await until(lambda: table.buffered_bytes > 5 * 60_000)
        await until(lambda: table.buffered_bytes < 100_000)
        await other.send(b"}")
        assert (await other.head()).startswith(b"HTTP/1.1 201 ")
        for client in (*clients, other):
            client.close()
