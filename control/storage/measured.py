"""A store that counts, times and traces the calls of another store, under upstream's names for requests to etcd."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from control.storage.store import Item, KeyExists, KeyNotFound, Page, RevisionConflict, Store, Watch
from kube.counters import Counter, Histogram
from kube.tracing import spans

T = TypeVar("T")
_LABELS = ("operation", "group", "resource")
REQUESTS = Counter("etcd_requests", "Requests to the store.", *_LABELS)
FAILED = Counter("etcd_request_errors", "Requests to the store that failed.", *_LABELS)
SECONDS = Histogram(
    "etcd_request_duration_seconds",
    "Time that the store took.",
    *_LABELS,
    buckets=(
        0.005,
        0.025,
        0.05,
        0.1,
        0.2,
        0.4,
        0.6,
        0.8,
        1.0,
        1.25,
        1.5,
        2.0,
        3.0,
        4.0,
        5.0,
        6.0,
        8.0,
        10.0,
        15.0,
        20.0,
        30.0,
    ),
)
_EXPECTED = (KeyExists, KeyNotFound, RevisionConflict)
"""Errors that are regular results, not failures of the store."""
_SPANS = {
    "get": "Get etcd3",
    "list": "List etcd3",
    "create": "Create etcd3",
    "update": "GuaranteedUpdate etcd3",
    "delete": "Delete etcd3",
}
"""Upstream's names of spans (apiserver/pkg/storage/etcd3/store.go), of SQLite too."""


async def _traced(labels: tuple[str, str, str], key: str, work: Awaitable[T]) -> T:
    """Await a call as a child of the current span, with the revision that it wrote or read."""
    operation, group, resource = labels
    attributes = {"key": key, "resource": f"{resource}.{group}" if group else resource}
    with spans.child(_SPANS[operation], attributes) as span:
        result = await work
        if span is not None and isinstance(result, Item):
            span.set_attribute("revision", result.revision)
        return result


class MeasuredStore:
    """Wrapper of another store. `names` maps a key's folder ("/registry/pods/") to group and resource."""

    def __init__(self, store: Store, names: Mapping[str, tuple[str, str]]) -> None:
        self._store, self._names = store, names
        self.compact, self.compacted_revision = store.compact, store.compacted_revision
        self.snapshot, self.current_revision, self.close = store.snapshot, store.current_revision, store.close

    async def get(self, key: str) -> Item | None:
        return await self._measured("get", key, self._store.get(key))

    async def list(
        self, prefix: str, revision: int = 0, start_after: str = "", limit: int = 0, *, counted: bool = True
    ) -> Page:
        return await self._measured(
            "list", prefix, self._store.list(prefix, revision, start_after, limit, counted=counted)
        )

    async def create(self, key: str, value: bytes, ttl: int = 0) -> Item:
        return await self._measured("create", key, self._store.create(key, value, ttl))

    async def update(self, key: str, value: bytes, expected_revision: int, ttl: int = 0) -> Item:
        return await self._measured("update", key, self._store.update(key, value, expected_revision, ttl))

    async def delete(self, key: str, expected_revision: int = 0) -> Item:
        return await self._measured("delete", key, self._store.delete(key, expected_revision))

    def watch(self, prefix: str, after_revision: int, *, previous: bool = False) -> Watch:
        return self._store.watch(prefix, after_revision, previous=previous)

    async def _measured(self, operation: str, key: str, work: Awaitable[T]) -> T:
        labels = (operation, *self._name(key))
        if spans.current() is not None:
            work = _traced(labels, key, work)
        start = time.perf_counter()
        try:
            return await work
        except _EXPECTED:
            raise
        except Exception:
            FAILED.add(*labels)
            raise
        finally:
            REQUESTS.add(*labels)
            SECONDS.observe(*labels, time.perf_counter() - start)

    def _name(self, key: str) -> tuple[str, str]:
        """Return group and resource of a key by its longest known folder; empty names where none is known."""
        parts = key.split("/", 4)
        for length in (4, 3):
            found = self._names.get("/".join(parts[:length]) + "/")
            if found is not None:
                return found
        return "", ""
