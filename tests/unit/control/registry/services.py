"""A Service allocator with the objects and records of a cluster in memory."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, NamedTuple

from control.auth.user import UserInfo
from control.registry.core.service.allocator import ServiceAllocator
from control.registry.strategy_context import Outcome
from control.storage.store import Item, KeyExists, RevisionConflict
from kube.clock import format_time
from kube.errors import already_exists
from kube.json_object import Object
from tests.unit.control.registry.strategies import created, service


class Values:
    """The few keys that are not objects, with compare-and-swap."""

    def __init__(self) -> None:
        self.items: dict[str, Item] = {}

    async def get(self, key: str) -> Item | None:
        return self.items.get(key)

    async def create(self, key: str, value: bytes) -> Item:
        if key in self.items:
            raise KeyExists(key, self.items[key])
        self.items[key] = Item(key, value, 1, 1)
        return self.items[key]

    async def update(self, key: str, value: bytes, expected: int) -> Item:
        if self.items[key].revision != expected:
            raise RevisionConflict(key, expected, self.items[key])
        self.items[key] = Item(key, value, expected + 1, 1)
        return self.items[key]


class Stored(NamedTuple):
    key: str
    data: bytes


class Cluster:
    """Objects in memory, as an allocation sees them; what another server has claimed is in `foreign`."""

    def __init__(self, *services: Object, dry_run: bool = False) -> None:
        self.user, self.dry_run, self.size = UserInfo("test"), dry_run, 0
        self.services = list(services)
        self.ranges: list[Object] = []
        self.records: dict[str, Object] = {}
        self.foreign: set[str] = set()
        self.store: Any = Values()
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    async def current(self) -> None:
        """All there is is shown at once."""

    def find(self, group: str, version: str, plural: str, namespace: str, name: str) -> Object | None:
        return None

    def entries(self, group: str, version: str, plural: str) -> list[Stored]:
        found = self.objects(group, version, plural)
        return [Stored(f"/{plural}/{obj['metadata']['name']}", json.dumps(obj).encode()) for obj in found]

    def objects(self, group: str, version: str, plural: str) -> list[Object]:
        if plural == "ipaddresses":
            return list(self.records.values())
        return self.services if plural == "services" else self.ranges

    async def create(self, obj: Object) -> Object:
        name = obj["metadata"]["name"]
        if name in self.records or name in self.foreign:
            raise already_exists("networking.k8s.io", "ipaddresses", name)
        obj["metadata"]["creationTimestamp"] = format_time(self.now)
        self.records[name] = obj
        return obj

    async def delete(self, group: str, version: str, plural: str, namespace: str, name: str) -> None:
        self.records.pop(name, None)


def allocator(ranges: tuple[str, ...] = ("10.96.0.0/24",), ports: range = range(30000, 30100)) -> ServiceAllocator:
    return ServiceAllocator(ranges, ports)


def named(name: str, **spec: Any) -> Object:
    obj = created(service(**spec))
    obj["metadata"]["name"] = name
    return obj


async def stored(found: ServiceAllocator, cluster: Cluster, obj: Object, old: Object | None = None) -> Object:
    finish = await found.allocate(obj, old, cluster)
    await finish(Outcome.STORED)
    return obj
