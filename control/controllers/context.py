"""What every controller is given: the client, the clock, the shared informers and an event recorder.

Informers are shared, so that the manager holds one copy of each kind however many controllers follow it. A controller
asks for them in its constructor; the manager runs them all before any controller works.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.events import EventRecorder
from kube.informer import Informer

T = TypeVar("T", bound=msgspec.Struct)


class SharedInformers:
    """One informer a kind, made when first asked for and run from then on."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client, self._clock = client, clock
        self._informers: dict[tuple[type[Any], str, str], Informer[Any]] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(self, kind: type[T]) -> Informer[T]:
        """Return the informer of a kind, in all namespaces."""
        return self.filtered(kind)

    def filtered(self, kind: type[T], namespace: str = "", *, field_selector: str = "") -> Informer[T]:
        """Return the informer of those objects of a kind that are in a namespace or have a field."""
        key = (kind, namespace, field_selector)
        found: Informer[T] | None = self._informers.get(key)
        if found is None:
            found = Informer(self._client, kind, namespace, field_selector=field_selector, clock=self._clock)
            self._informers[key] = found
            if self._group is not None:
                self._start(self._group, kind, found)
        return found

    def existing(self, kind: type[Any]) -> Informer[Any] | None:
        """Return the informer of a kind in all namespaces, if anybody has asked for one."""
        return self._informers.get((kind, "", ""))

    def _start(self, group: asyncio.TaskGroup, kind: type[Any], informer: Informer[Any]) -> None:
        group.create_task(informer.run(), name=f"informer {kind.__name__}")

    async def wait_synced(self) -> None:
        """Wait until every informer has its first list."""
        for informer in list(self._informers.values()):
            await informer.wait_synced()

    async def run(self) -> None:
        """Run all informers, also those that are asked for later, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for key, informer in self._informers.items():
                    self._start(group, key[0], informer)
                await asyncio.Event().wait()
        finally:
            self._group = None


class Context:
    """The surroundings of a controller."""

    def __init__(self, client: Client, clock: Clock = SYSTEM, informers: SharedInformers | None = None) -> None:
        self.client, self.clock = client, clock
        self.informers = informers or SharedInformers(client, clock)
        self._recorders: dict[str, EventRecorder] = {}
        self._departures: list[Callable[[str], None]] = []

    def on_departure(self, handler: Callable[[str], None]) -> None:
        """Call `handler` with the namespace of every object that goes, of whatever kind (the garbage collector sees all)."""
        self._departures.append(handler)

    def departed(self, namespace: str) -> None:
        """Tell that an object of a namespace is gone."""
        for handler in self._departures:
            handler(namespace)

    def recorder(self, component: str) -> EventRecorder:
        """Return the recorder whose events name `component` as their source."""
        if component not in self._recorders:
            self._recorders[component] = EventRecorder(self.client, component, clock=self.clock)
        return self._recorders[component]

    def recorders(self) -> list[EventRecorder]:
        """Return all recorders, whose `run` has to be running."""
        return list(self._recorders.values())
