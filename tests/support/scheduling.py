"""A scheduler in front of objects that are put into its informers by hand, nothing written."""

from __future__ import annotations

import builtins
from collections import defaultdict
from typing import Any

from control.scheduler.configuration import SchedulerConfig
from control.scheduler.main import Scheduler
from control.scheduler.queued_pod import QueuedPod
from kube.informer import Change
from kube.object_names import key_of
from tests.support.clock import FakeClock


class Store:
    """Objects of an informer of one kind."""

    synced = True

    def __init__(self) -> None:
        self._objects: dict[str, Any] = {}
        self._handlers: list[Any] = []
        self._indexes: dict[str, Any] = {}

    def get(self, key: str) -> Any:
        return self._objects.get(key)

    def list(self) -> list[Any]:
        return list(self._objects.values())

    def add_index(self, name: str, function: Any) -> None:
        """Nothing is indexed: `by_index` reads all objects."""
        self._indexes[name] = function

    def by_index(self, name: str, value: str) -> builtins.list[Any]:
        return [obj for obj in self._objects.values() if value in self._indexes[name](obj)]

    def subscribe(self, handler: Any) -> None:
        self._handlers.append(handler)
        for obj in self._objects.values():
            handler(Change("ADDED", None, obj))

    def put(self, obj: Any) -> None:
        old, self._objects[key_of(obj)] = self._objects.get(key_of(obj)), obj
        self._tell(Change("ADDED" if old is None else "MODIFIED", old, obj))

    def remove(self, obj: Any) -> None:
        del self._objects[key_of(obj)]
        self._tell(Change("DELETED", obj, obj))

    def _tell(self, change: Change[Any]) -> None:
        for handler in self._handlers:
            handler(change)


class Informers:
    """The stores by kind."""

    def __init__(self) -> None:
        self.stores: dict[type[Any], Store] = defaultdict(Store)

    def of(self, kind: type[Any]) -> Any:
        return self.stores[kind]


class Bench:
    """The scheduler with its default plugins."""

    def __init__(self) -> None:
        self.informers, self.clock = Informers(), FakeClock()
        self.scheduler = Scheduler(None, self.informers, SchedulerConfig(), self.clock)  # type: ignore[arg-type]
        self.scheduler.follow()

    def put(self, *objects: Any) -> None:
        for obj in objects:
            self.informers.of(type(obj)).put(obj)

    def remove(self, obj: Any) -> None:
        self.informers.of(type(obj)).remove(obj)

    def schedule(self) -> list[Any]:
        """Decide for every pod in the queue, once."""
        queue, found = self.scheduler.queue, []
        waiting = queue.lengths()[0]
        for _ in range(waiting):
            queued: QueuedPod | None = queue._pop()
            if queued is None:
                break
            queue._in_flight[queued.info.uid] = set()
            del queue._pods[queued.key]
            queued.attempts += 1
            queued.last_try = self.clock.monotonic()
            found.append(self.scheduler._cycle.decide(queued))
        return found
