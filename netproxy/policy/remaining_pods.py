"""Pods of this node whose objects are gone while their containers run, as after a deletion by force.

They stay under their policies, with their last labels, until the CNI plugins have released their addresses.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Iterator

from kube.clock import Clock
from netproxy.policy.objects import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.turns import Turns

log = logging.getLogger(__name__)
PERIOD = 2.0
"""Seconds between looks whether the addresses of such pods are still held."""


class RemainingPods:
    """Keeps such pods in a table; `addresses_here` returns the addresses that CNI plugins have given, or raises OSError."""

    def __init__(
        self,
        table: PolicyTable,
        turns: Turns,
        clock: Clock,
        addresses_here: Callable[[], Collection[str]],
        on_change: Callable[[], None],
    ) -> None:
        self._table, self._turns, self._clock = table, turns, clock
        self._addresses_here, self._on_change = addresses_here, on_change
        self._keys: set[str] = set()
        self._look = asyncio.Event()

    def pod_changed(self, key: str, old: PodFacts | None, facts: PodFacts | None) -> bool:
        """Take in that a pod changed, None for one without an object; return whether rules depend on it."""
        touched = False
        if facts is not None:
            for known in [each for each in self._keys if set(facts.ips) & set(self._table.known.pods[each].ips)]:
                touched |= self._forget(known)
        if old is not None and old.here and old.ips and (facts is None or not set(old.ips) & set(facts.ips)):
            own = " ".join((key, *old.ips))
            self._keys.add(own)
            self._look.set()
            touched |= self._table.set_pod(own, old)
        return touched

    def clear(self) -> None:
        """Take in that the table no longer has any pods."""
        self._keys.clear()

    async def run(self) -> None:
        """Forget pods whose addresses are released, until cancelled."""
        while True:
            await (self._clock.sleep(PERIOD) if self._keys else self._look.wait())
            self._look.clear()
            asked = list(self._keys)
            try:
                held = set(await asyncio.to_thread(self._addresses_here))
            except OSError as error:
                log.error("results of CNI plugins cannot be read: %s", error)
                continue
            for key in asked:
                self._turns.add(functools.partial(self._forget_released, key, held))

    def _forget_released(self, key: str, held: Collection[str]) -> Iterator[None]:
        if key in self._keys and not set(held) & set(self._table.known.pods[key].ips) and self._forget(key):
            self._on_change()
        yield from ()

    def _forget(self, key: str) -> bool:
        self._keys.discard(key)
        return self._table.set_pod(key, None)
