"""References of pods are watched while they are few, and fetched once a minute beyond that."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

import pytest

from agent.pods import references as store_module
from agent.pods.referenced_objects import LAST_RETRY, TTL_SECONDS, Reference, WatchedObject
from agent.pods.references import (
    LARGEST,
    LARGEST_BYTES,
    READ_SECONDS,
    WATCHES,
    WATCHES_OF_A_POD,
    ReferencesError,
    ReferenceStore,
)
from kube.api import core_v1
from kube.client import Client, Response
from kube.errors import StatusError
from tests.support.clock import FakeClock, settle


class Server:
    """Has every ConfigMap that is asked for, `revisions` of those that changed; counts watches and fetches."""

    def __init__(self) -> None:
        self.watches = self.fetched = 0
        self.revisions: dict[str, int] = {}
        self.missing: set[str] = set()
        self.broken = False
        self.size = 0

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Response:
        await asyncio.sleep(0)
        namespace = path.split("/")[4]
        selector = (query or {}).get("fieldSelector")
        if selector is not None:
            if self.broken:
                raise StatusError(503, "ServiceUnavailable", "away")
            listed = [self._object(selector.removeprefix("metadata.name="), namespace)]
            return Response(200, {}, json.dumps({"metadata": {"resourceVersion": "1"}, "items": listed}).encode())
        self.fetched += 1
        name = path.rpartition("/")[2]
        if self.broken:
            raise StatusError(503, "ServiceUnavailable", "away")
        if name in self.missing:
            raise StatusError(404, "NotFound", name)
        return Response(200, {}, json.dumps(self._object(name, namespace)).encode())

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, *, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self.watches += 1
        try:
            yield self._silence()
        finally:
            self.watches -= 1

    async def _silence(self) -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    async def close(self) -> None: ...

    def _object(self, name: str, namespace: str) -> dict[str, object]:
        metadata = {
            "name": name,
            "namespace": namespace,
            "resourceVersion": str(self.revisions.get(name, 1)),
            "uid": name,
        }
        return {"metadata": metadata, "data": {"key": "v" * self.size}}


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def reported() -> list[str]:
    return []


@pytest.fixture
async def store(server: Server, clock: FakeClock, reported: list[str]) -> AsyncIterator[ReferenceStore]:
    def changed(uids: Iterable[str]) -> None:
        reported.extend(uids)

    made = ReferenceStore(Client(server), changed, clock=clock)
    yield made
    await made.close()


def names(count: int, prefix: str = "c") -> frozenset[Reference]:
    return frozenset(Reference(core_v1.ConfigMap, "n", f"{prefix}{number}") for number in range(count))


async def test_a_pod_of_a_thousand_references_takes_few_watches(server: Server, store: ReferenceStore) -> None:
    store.track("large", names(1000))
    await store.ready("large")
    await settle()
    assert server.watches == WATCHES_OF_A_POD
    assert all(store.config_map("n", f"c{number}") for number in range(1000))
    store.track("small", names(2, "s"))
    await store.ready("small")
    await settle()
    assert server.watches == WATCHES_OF_A_POD + 2
    assert len(asyncio.all_tasks()) <= WATCHES_OF_A_POD + 10


async def test_a_watched_object_is_followed_again_after_an_unforeseen_error(
    server: Server, store: ReferenceStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, listed = [TypeError("a bug")], server.request

    async def fails_once(*given: Any, **more: Any) -> Response:
        if failures:
            raise failures.pop()
        return await listed(*given, **more)

    monkeypatch.setattr(server, "request", fails_once)
    store.track("p", names(1))
    await settle()
    assert not failures and store.config_map("n", "c0") is None
    await clock.advance(LAST_RETRY)
    assert server.watches == 1 and store.config_map("n", "c0") is not None


async def test_the_watches_of_all_pods_are_bounded(server: Server, store: ReferenceStore) -> None:
    for pod in range(10):
        store.track(f"pod-{pod}", names(60, f"p{pod}-"))
        await store.ready(f"pod-{pod}")
    await settle()
    assert server.watches == WATCHES
    for pod in range(10):
        store.forget(f"pod-{pod}")
    assert store._bytes == {}


async def test_fetched_documents_are_refetched_each_minute_and_changes_are_reported(
    server: Server, store: ReferenceStore, clock: FakeClock, reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", 0)
    store.track("p", names(3))
    await store.ready("p")
    await store.ready("p")
    assert server.fetched == 3
    server.revisions["c1"] = 2
    await clock.advance(TTL_SECONDS + 1)
    assert server.fetched == 6 and reported == ["p"]
    server.missing.add("c2")
    await clock.advance(TTL_SECONDS + 1)
    assert reported == ["p", "p"] and store.config_map("n", "c2") is None
    server.broken = True
    await clock.advance(TTL_SECONDS + 1)
    assert store.config_map("n", "c1") is not None
    store.forget("p")
    await settle()
    before = server.fetched
    await clock.advance(2 * TTL_SECONDS)
    assert server.fetched == before and store._polls.idle


async def test_a_pod_that_starts_sees_what_is_fetched_as_it_is_now(
    server: Server, store: ReferenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", 0)
    store.track("first", names(1))
    await store.ready("first")
    server.revisions["c0"] = 2
    store.track("second", names(1))
    await store.ready("second")
    found = store.config_map("n", "c0")
    assert found is not None and found.metadata.resource_version == "2"


async def test_a_waiting_pod_repeats_the_request_that_the_server_did_not_answer(
    server: Server, store: ReferenceStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", 0)
    server.broken = True
    store.track("p", names(1))
    waiting = asyncio.create_task(store.ready("p"))
    await settle()
    assert not waiting.done()
    server.broken = False
    await clock.advance(2)
    await waiting


@pytest.mark.parametrize("watches", [0, WATCHES_OF_A_POD])
async def test_what_cannot_be_read_is_an_error_after_a_while_and_is_read_by_the_next_attempt(
    server: Server, store: ReferenceStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, watches: int
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", watches)
    server.broken = True
    store.track("p", names(2))
    for _ in range(2):
        waiting = asyncio.create_task(store.ready("p"))
        await clock.advance(READ_SECONDS - 1)
        assert not waiting.done()
        await clock.advance(2)
        with pytest.raises(ReferencesError, match=r"failed to sync configmap cache: n/c\d: away"):
            await waiting
    server.broken = False
    waiting = asyncio.create_task(store.ready("p"))
    await clock.advance(READ_SECONDS - 1)
    await waiting


async def test_a_pod_with_too_many_references_gets_an_error_and_causes_no_requests(
    server: Server, store: ReferenceStore
) -> None:
    store.track("p", names(LARGEST + 1))
    with pytest.raises(ReferencesError, match=f"names {LARGEST + 1} ConfigMaps and Secrets, {LARGEST} are allowed"):
        await store.ready("p")
    await settle()
    assert server.watches == server.fetched == 0
    store.track("p", names(1))
    await store.ready("p")


async def test_objects_that_are_too_large_together_are_not_held_for_the_pod_that_names_them(
    server: Server, store: ReferenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", 0)
    server.size = 1 << 20
    store.track("large", names(100))
    with pytest.raises(ReferencesError, match="larger than"):
        await store.ready("large")
    held = sum(followed.source.get() is not None for followed in store._followed.values())
    assert held == LARGEST_BYTES // server.size - 1 and server.fetched == held + 1
    store.track("small", frozenset({Reference(core_v1.ConfigMap, "n", "c99")}))
    await store.ready("small")
    assert store.config_map("n", "c99") is not None


def of(namespace: str, count: int, prefix: str = "c") -> frozenset[Reference]:
    return frozenset(Reference(core_v1.ConfigMap, namespace, f"{prefix}{number}") for number in range(count))


def _watched(store: ReferenceStore, namespace: str) -> int:
    return sum(
        reference.namespace == namespace and isinstance(followed.source, WatchedObject)
        for reference, followed in store._followed.items()
    )


async def test_namespaces_share_the_watches_and_nothing_is_lost_where_one_gives_some_up(
    server: Server, store: ReferenceStore, clock: FakeClock, reported: list[str]
) -> None:
    for pod in range(WATCHES // WATCHES_OF_A_POD):
        store.track(f"loud-{pod}", of("loud", WATCHES_OF_A_POD, f"p{pod}-"))
        await store.ready(f"loud-{pod}")
    store.track("quiet", of("quiet", 5))
    await store.ready("quiet")
    await settle()
    assert (_watched(store, "loud"), _watched(store, "quiet"), server.watches) == (WATCHES - 5, 5, WATCHES)
    held = [store.config_map("loud", f"p{pod}-{number}") for pod in range(4) for number in range(WATCHES_OF_A_POD)]
    assert all(held) and not reported, "what is not watched any more is still there"
    server.revisions |= {f"p{pod}-{number}": 2 for pod in range(4) for number in range(WATCHES_OF_A_POD)}
    await clock.advance(TTL_SECONDS + 1)
    assert len(reported) == server.fetched == 5, "what is not watched any more is fetched"
    store.track("greedy", of("third", WATCHES_OF_A_POD))
    store.track("greedier", of("third", WATCHES_OF_A_POD, "d"))
    await store.ready("greedier")
    await settle()
    assert (_watched(store, "quiet"), server.watches) == (5, WATCHES)
    assert abs(_watched(store, "third") - _watched(store, "loud")) <= 2
    store.forget("quiet")
    for pod in range(4):
        store.forget(f"loud-{pod}")
    await clock.advance(2 * TTL_SECONDS)
    assert len(store._watched) == server.watches == _watched(store, "third")


async def test_a_pod_keeps_its_watch_where_it_would_hold_too_much_without(
    server: Server, store: ReferenceStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES", 4)
    monkeypatch.setattr(store_module, "LARGEST_BYTES", 1500)
    server.size = 900
    store.track("large", of("loud", 4))
    await store.ready("large")
    store.track("quiet", of("quiet", 1))
    await store.ready("quiet")
    store.track("quiet-2", of("quiet", 1, "d"))
    await store.ready("quiet-2")
    assert (_watched(store, "loud"), _watched(store, "quiet")) == (3, 1)
    await store.ready("large")
    assert all(store.config_map("loud", f"c{number}") for number in range(4))


async def test_what_few_pods_name_is_fetched_each_minute_however_much_others_name(
    server: Server, store: ReferenceStore, clock: FakeClock, reported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "WATCHES_OF_A_POD", 0)
    for pod in range(6):
        store.track(f"loud-{pod}", of("loud", LARGEST, f"p{pod}-"))
    store.track("small", of("loud", 2, "small"))
    store.track("quiet", of("quiet", 3, "quiet"))
    for uid in ("small", "quiet"):
        await store.ready(uid)
    for revision in (2, 3):
        server.revisions = {f"small{number}": revision for number in range(2)}
        server.revisions |= {f"quiet{number}": revision for number in range(3)}
        reported.clear()
        await clock.advance(TTL_SECONDS + 2)
        assert reported.count("quiet") == 3 and reported.count("small") == 2
    assert server.fetched > 1920
