"""What every controller is given: the client, the clock, the shared informers and an event recorder.

Informers are shared, so that the manager holds one copy of each kind however many controllers follow it. A controller
asks for them in its constructor; the manager runs them all before any controller works.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

import msgspec

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.events import EventRecorder
from kube.informer import Informer

T = TypeVar("T", bound=msgspec.Struct)


class SharedInformers:
    """One informer a kind, made when first asked for."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self._client, self._clock = client, clock
        self._informers: dict[type[Any], Informer[Any]] = {}

    def of(self, kind: type[T]) -> Informer[T]:
        """Return the informer of a kind, in all namespaces."""
        found: Informer[T] | None = self._informers.get(kind)
        if found is None:
            found = self._informers[kind] = Informer(self._client, kind, clock=self._clock)
        return found

    def kinds(self) -> list[type[Any]]:
        return list(self._informers)

    async def wait_synced(self) -> None:
        """Wait until every informer has its first list."""
        for informer in list(self._informers.values()):
            await informer.wait_synced()

    async def run(self) -> None:
        """Run all informers that exist now until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, informer in self._informers.items():
                group.create_task(informer.run(), name=f"informer {kind.__name__}")


class Context:
    """The surroundings of a controller."""

    def __init__(self, client: Client, clock: Clock = SYSTEM) -> None:
        self.client, self.clock = client, clock
        self.informers = SharedInformers(client, clock)
        self._recorders: dict[str, EventRecorder] = {}

    def recorder(self, component: str) -> EventRecorder:
        """Return the recorder whose events name `component` as their source."""
        if component not in self._recorders:
            self._recorders[component] = EventRecorder(self.client, component, clock=self.clock)
        return self._recorders[component]

    def recorders(self) -> list[EventRecorder]:
        """Return all recorders, whose `run` has to be running."""
        return list(self._recorders.values())
