"""Services without all of their addresses, with the reason that was reported. They are reconciled again when a port of
theirs becomes free: not all of them at each change, since a user may make any number of Services that wait.

Ports become free in handlers of informers, where only their numbers are recorded. The controller compares them with the
Services' in small steps, under the key WAKE: a Service may have thousands of ports, and so may each of those that wait. Those
that are found come into the queue a few at a time, with WAKE behind them: changes of other Services wait for a few only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable

from control.controllers.service_lb import plan
from control.controllers.service_lb.ports import Port, ports_of
from control.controllers.step_counter import StepCounter
from kube.api import core_v1
from kube.informer import Informer
from kube.object_names import key_of

PORT = "load-balancer-port"
WAKE = ""
"""Key of the controller's queue for which it calls `wake`; no Service has it."""
WOKEN_AT_ONCE = 16
"""Services that come into the queue together."""


def _ports(service: core_v1.Service) -> list[str]:
    return [f"{protocol}/{number}" for protocol, number in ports_of(service)] if plan.wanted(service) else []


def add_index(services: Informer[core_v1.Service]) -> None:
    """Add the index PORT: Services of type LoadBalancer by their ports."""
    services.add_index(PORT, _ports)


class WaitingServices:
    """Keys of Services that wait for ports."""

    def __init__(self, services: Informer[core_v1.Service], enqueue: Callable[[str], None]) -> None:
        add_index(services)
        self._services, self._enqueue = services, enqueue
        self._reported: dict[str, str] = {}
        self._partial: set[str] = set()
        self._freed: set[Port] = set()
        self._woken: dict[str, None] = {}
        """Services that are still to come into the queue, in the order in which they do."""

    def __contains__(self, key: str) -> bool:
        return key in self._reported or key in self._partial

    def report(self, key: str, message: str) -> bool:
        """Record why a Service has no address; return whether that is new."""
        new = self._reported.get(key) != message
        self._reported[key] = message
        return new

    def served(self, key: str, *, partial: bool) -> None:
        """Record that a Service has addresses; `partial` if some are withheld because of its ports."""
        self._reported.pop(key, None)
        if partial:
            self._partial.add(key)
        else:
            self._partial.discard(key)

    def forget(self, key: str) -> None:
        self.served(key, partial=False)

    def freed(self, ports: Iterable[Port]) -> None:
        """Record that ports may have become free."""
        before = len(self._freed)
        self._freed.update(ports)
        if len(self._freed) > before:
            self._enqueue(WAKE)

    async def wake(self) -> None:
        """Reconcile the Services that wait and have one of the ports which may have become free, the first few of them now."""
        await self._find_woken()
        for key in list(itertools.islice(self._woken, WOKEN_AT_ONCE)):
            del self._woken[key]
            if key in self:
                self._enqueue(key)
        if self._woken:
            self._enqueue(WAKE)

    async def _find_woken(self) -> None:
        freed, self._freed = self._freed, set()
        asleep, counter = (self._reported.keys() | self._partial) - self._woken.keys(), StepCounter()
        for protocol, number in freed:
            if not asleep:
                break
            await counter.count()
            for service in self._services.by_index(PORT, f"{protocol}/{number}"):
                await counter.count()
                if (key := key_of(service)) in asleep:
                    asleep.remove(key)
                    self._woken[key] = None
