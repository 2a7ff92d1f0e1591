"""Decoding by a client that shares the event loop with the server: lists, pages and watches yield to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec
import pytest

from kube import client, serialize
from kube.api import core_v1
from kube.client import FIRST_PAGE, MOST_OF_A_PAGE, PAGE_BYTES, TURN_BYTES, Client, Response

LARGE = 2 * TURN_BYTES
PODS = "/api/v1/namespaces/x/pods"


def pod(number: int, size: int) -> bytes:
    return msgspec.json.encode({"metadata": {"name": f"p{number:03}", "annotations": {"a": "x" * size}}})


class Server:
    """Answers lists as asked for, in pages, and a watch that has all its events at once."""

    def __init__(self, *sizes: int) -> None:
        self.pods = [pod(number, size) for number, size in enumerate(sizes)]
        self.limits: list[int] = []

    async def request(self, method: str, path: str, *, query: Mapping[str, str] | None = None, **_: Any) -> Response:
        requested = query or {}
        limit, start = int(requested.get("limit", 0)), int(requested.get("continue", 0))
        self.limits.append(limit)
        items = self.pods[start : start + limit] if limit else self.pods
        after = start + len(items)
        more = {"continue": str(after)} if after < len(self.pods) else {}
        return Response(200, {}, b'{"metadata":%b,"items":[%b]}' % (msgspec.json.encode(more), b",".join(items)))

    @contextlib.asynccontextmanager
    async def stream(self, path: str, *, query: Mapping[str, str] | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        async def chunks() -> AsyncIterator[bytes]:
            for each in self.pods:
                yield b'{"type":"ADDED","object":%b}\n' % each

        yield chunks()

    async def close(self) -> None:
        """Nothing is held."""


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the bytes that are decoded between two suspensions of the event loop."""
    found, original = [0], serialize.decode

    def decode(data: bytes, kind: Any) -> Any:
        if kind is not client._ListEnvelope:
            found[-1] += len(data)
        return original(data, kind)

    monkeypatch.setattr(serialize, "decode", decode)
    return found


@contextlib.asynccontextmanager
async def others(at_once: list[int]) -> AsyncIterator[None]:
    async def go_on() -> None:
        while True:
            at_once.append(0)
            await asyncio.sleep(0)

    task = asyncio.create_task(go_on())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()


@pytest.mark.parametrize("how", ["list", "each", "watch"])
async def test_large_objects_are_decoded_one_in_a_turn_however_many_are_there(how: str, at_once: list[int]) -> None:
    number = 5
    found, api = list[str](), Client(Server(*([LARGE] * number)))  # type: ignore[arg-type]

    async def read() -> None:
        if how == "list":
            found.extend(str(each.metadata.name) for each in (await api.list(core_v1.Pod, "x")).items)
        elif how == "each":
            found.extend([str(each.metadata.name) async for each in api.each(PODS, core_v1.Pod)])
        else:
            found.extend([str(event.object.metadata.name) async for event in api.watch(core_v1.Pod, "x")])

    async with others(at_once):
        await asyncio.gather(read(), read())
    assert len(found) == 2 * number
    # A watched line is decoded twice, the second time as an object.
    assert max(at_once) < (3 if how == "watch" else 2) * LARGE


async def test_small_objects_are_decoded_together(at_once: list[int]) -> None:
    async with others(at_once):
        before = len(at_once)
        assert len((await Client(Server(*([100] * 100))).list(core_v1.Pod, "x")).items) == 100  # type: ignore[arg-type]
    assert len(at_once) - before <= 1


async def test_pages_are_as_large_as_objects_are_small() -> None:
    small = Server(*([100] * 200))
    assert len([each async for each in Client(small).each(PODS, core_v1.Pod)]) == 200  # type: ignore[arg-type]
    assert small.limits[0] == FIRST_PAGE and max(small.limits) == MOST_OF_A_PAGE and len(small.limits) < 12
    large = Server(*([PAGE_BYTES // 2] * 20))
    assert len([each async for each in Client(large).each(PODS, core_v1.Pod)]) == 20  # type: ignore[arg-type]
    assert set(large.limits[1:]) <= {1, 2}


async def test_only_requested_fields_are_decoded() -> None:
    class Named(msgspec.Struct):
        class Name(msgspec.Struct):
            name: str

        metadata: Name

    found = [each async for each in Client(Server(10)).each(PODS, Named)]  # type: ignore[arg-type]
    assert [each.metadata.name for each in found] == ["p000"]
