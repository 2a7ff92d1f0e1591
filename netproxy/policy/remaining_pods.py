"""Pods of this node whose objects are gone while their containers run, as after a deletion by force.

They stay under their policies, with their last labels, until the CNI plugins have released their addresses. A pod that was
deleted before its status had an address gets that which the CNI plugins gave to its UID. Until then it counts as a pod that
starts: addresses that no pod is known to have are closed.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import Callable, Iterator, Mapping

from kube.clock import Clock
from netproxy.policy.objects import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.turns import Turns

log = logging.getLogger(__name__)
PERIOD = 2.0
"""Seconds between looks whether the addresses of such pods are still held."""
START_SECONDS = 300.0
"""How long a pod that was deleted without an address may still get one: a runtime has up to four minutes to make a sandbox."""


class RemainingPods:
    """Keeps such pods in a table.

    `addresses_here` returns the addresses that CNI plugins have given, each with its pod's UID, "" where that is not known. It
    may raise OSError.
    """

    def __init__(
        self,
        table: PolicyTable,
        turns: Turns,
        clock: Clock,
        addresses_here: Callable[[], Mapping[str, str]],
        on_change: Callable[[], None],
    ) -> None:
        self._table, self._turns, self._clock = table, turns, clock
        self._addresses_here, self._on_change = addresses_here, on_change
        self._keys: dict[str, float] = {}
        """Each with the time at which its object was gone."""
        self._look = asyncio.Event()

    def pod_changed(self, key: str, old: PodFacts | None, facts: PodFacts | None, *, deleted: bool) -> bool:
        """Take in that a pod changed, None for one that has finished or was deleted; return whether rules depend on it."""
        touched = False
        if facts is not None:
            for known in [each for each in self._keys if set(facts.ips) & set(self._table.known.pods[each].ips)]:
                touched |= self._forget(known)
        if old is not None and old.here and _is_left(old, facts, deleted):
            own = " ".join((key, old.uid, *old.ips))
            self._keys[own] = self._clock.monotonic()
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
                held = await asyncio.to_thread(self._addresses_here)
            except OSError as error:
                log.error("results of CNI plugins cannot be read: %s", error)
                continue
            for key in asked:
                self._turns.add(functools.partial(self._settle, key, held))

    def _settle(self, key: str, held: Mapping[str, str]) -> Iterator[None]:
        """Forget a pod whose addresses are released; give one without an address that of its UID."""
        if key in self._keys:
            pod = self._table.known.pods[key]
            given = tuple(ip for ip, uid in held.items() if uid and uid == pod.uid)
            touched = False
            if pod.ips:
                touched = not held.keys() & set(pod.ips) and self._forget(key)
            elif given:
                touched = self._table.set_pod(key, dataclasses.replace(pod, ips=given))
            elif self._may_start_no_more(key, held):
                touched = self._forget(key)
            if touched:
                self._on_change()
        yield from ()

    def _may_start_no_more(self, key: str, held: Mapping[str, str]) -> bool:
        """Tell whether a pod without an address has none and gets none: it has had its time, and every address is another's."""
        known = {ip for pod in self._table.known.here.values() for ip in pod.ips}
        unclear = [ip for ip, uid in held.items() if not uid and ip not in known]
        return not unclear and self._clock.monotonic() - self._keys[key] >= START_SECONDS

    def _forget(self, key: str) -> bool:
        del self._keys[key]
        return self._table.set_pod(key, None)


def _is_left(old: PodFacts, facts: PodFacts | None, deleted: bool) -> bool:
    """Tell whether a pod as it was known may still run beside what is known under its name now."""
    if deleted or (facts is not None and facts.uid != old.uid):
        return True
    return bool(old.ips) and not (facts and set(old.ips) & set(facts.ips))
