"""Dependencies of every controller: a client, the clock, shared informers and an event recorder.

The client, and the recorder's, may act as the controller's own service account (identities.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.events import EventRecorder
from kube.journal import Journal
from kube.loops import Loops
from kube.shared_informers import SharedInformers


class Recorders:
    """One event recorder a client and component, made when first requested and run from then on."""

    def __init__(self, clock: Clock, journal: Journal | None = None) -> None:
        self._clock, self._loops, self._journal = clock, Loops(clock), journal
        self._recorders: dict[tuple[int, str], EventRecorder] = {}
        self._group: asyncio.TaskGroup | None = None

    def of(self, client: Client, component: str) -> EventRecorder:
        """Return the recorder whose events name `component` as their source and are sent by `client`."""
        key = (id(client), component)
        if key not in self._recorders:
            self._recorders[key] = EventRecorder(client, component, clock=self._clock, journal=self._journal)
            if self._group is not None:
                self._start(self._group, component, self._recorders[key])
        return self._recorders[key]

    def _start(self, group: asyncio.TaskGroup, component: str, recorder: EventRecorder) -> None:
        name = f"events of {component}"
        group.create_task(self._loops.run(name, recorder.run), name=name)

    async def run(self) -> None:
        """Run all recorders, also those that are requested later, until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for (_, component), recorder in self._recorders.items():
                    self._start(group, component, recorder)
                await asyncio.Event().wait()
        finally:
            self._group = None


class Context:
    """Client, informers and event recorders of controllers."""

    def __init__(
        self,
        client: Client,
        clock: Clock = SYSTEM,
        informers: SharedInformers | None = None,
        journal: Journal | None = None,
    ) -> None:
        self.client, self.clock = client, clock
        self.informers = informers or SharedInformers(client, clock)
        self.recorders = Recorders(clock, journal)
        self._departures: dict[str, Callable[[str], None]] = {}

    def acting_as(self, client: Client) -> Context:
        """Return the same context for a controller that writes through another client."""
        found = Context(client, self.clock, self.informers)
        found.recorders, found._departures = self.recorders, self._departures
        return found

    def on_departure(self, controller: str, handler: Callable[[str], None]) -> None:
        """Call a controller's handler with the namespace of every object that goes, of whatever kind.

        The garbage collector sees all. A controller that is recreated replaces its handler.
        """
        self._departures[controller] = handler

    def departed(self, namespace: str) -> None:
        """Tell that an object of a namespace is gone."""
        for handler in self._departures.values():
            handler(namespace)

    def recorder(self, component: str) -> EventRecorder:
        """Return the recorder whose events name `component` as their source; this context's client sends them."""
        return self.recorders.of(self.client, component)
