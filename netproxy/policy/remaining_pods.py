"""Pods of this node whose objects are gone while their containers run, as after a deletion by force.

They stay under their policies, with their last labels, until the CNI plugins have released their addresses. A pod that was
deleted before its status had an address gets that which the CNI plugins gave to its UID. Until then, for as long as a start may
take, addresses that no pod is known to have are closed, as while a pod starts.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from kube.clock import Clock
from netproxy.policy.objects import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.turns import Turns

log = logging.getLogger(__name__)
PERIOD = 2.0
"""Seconds between looks whether the addresses of such pods are still held."""
START_SECONDS = 300.0
"""How long a pod that was deleted without an address may still get one: a runtime has up to four minutes to make a sandbox."""
MOST = 1000
"""Pods without an address that are known one by one. Beyond, all addresses that nobody is known to have are closed."""
SLICE = 100
"""Pods between two suspensions."""


@dataclass(frozen=True, slots=True)
class _Unaddressed:
    """A pod that was deleted before its address was known."""

    key: str
    facts: PodFacts
    selected: bool
    """Whether a policy selected it then."""
    since: float


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
        self._addressed: dict[str, PodFacts] = {}
        self._with_address: dict[str, set[str]] = {}
        """Address -> keys of the pods above."""
        self._unaddressed: dict[str, _Unaddressed] = {}
        """By UID."""
        self._crowded: float | None = None
        """When a pod was last one too many."""
        self._trouble = ""
        self._look = asyncio.Event()

    def pod_changes(self, key: str, facts: PodFacts | None, *, deleted: bool) -> bool:
        """Take in, before the table does, that a pod changes, None for one that has finished or was deleted.

        Returns whether rules depend on it.
        """
        touched, old = self._forget_addresses(facts), self._table.known.pods.get(key)
        if old is not None and old.here and _is_left(old, facts, deleted):
            self._look.set()
            if old.ips:
                touched |= self._keep(" ".join((key, old.uid, *old.ips)), old)
            elif len(self._unaddressed) < MOST:
                selected = self._table.is_selected(key)
                self._unaddressed[old.uid] = _Unaddressed(key, old, selected, self._clock.monotonic())
            else:
                self._crowded = self._clock.monotonic()
        return self._close() or touched

    def clear(self) -> None:
        """Take in that the table no longer has any pods."""
        self._addressed.clear()
        self._with_address.clear()
        self._unaddressed.clear()
        self._crowded = None
        self._close()

    async def run(self) -> None:
        """Forget pods whose addresses are released, until cancelled."""
        while True:
            waiting = self._addressed or self._unaddressed or self._crowded is not None
            await (self._clock.sleep(PERIOD) if waiting else self._look.wait())
            self._look.clear()
            try:
                held = await asyncio.to_thread(self._addresses_here)
            except OSError as error:
                if str(error) != self._trouble:
                    log.error("results of CNI plugins cannot be read: %s", error)
                self._trouble = str(error)
                continue
            self._trouble = ""
            settled = asyncio.Event()
            self._turns.add(lambda held=held, settled=settled: self._settle(held, settled))  # type: ignore[misc]
            await settled.wait()

    def _settle(self, held: Mapping[str, str], settled: asyncio.Event) -> Iterator[None]:
        """Forget pods whose addresses are released; keep those without an address under that of their UID."""
        try:
            touched = False
            for count, (key, pod) in enumerate(list(self._addressed.items())):
                if key in self._addressed and not any(ip in held for ip in pod.ips):
                    touched |= self._forget(key)
                if count % SLICE == SLICE - 1:
                    yield
            touched |= self._settle_unaddressed(held)
            if self._close() or touched:
                self._on_change()
        finally:
            settled.set()

    def _settle_unaddressed(self, held: Mapping[str, str]) -> bool:
        touched, now = False, self._clock.monotonic()
        given: dict[str, list[str]] = {}
        for ip, uid in held.items():
            given.setdefault(uid, []).append(ip)
        known = {ip for pod in self._table.known.here.values() for ip in pod.ips}
        unclear = any(ip not in known for ip in given.get("", ()))
        for uid, pod in list(self._unaddressed.items()):
            if uid and uid in given:
                del self._unaddressed[uid]
                facts = dataclasses.replace(pod.facts, ips=tuple(given[uid]))
                touched |= self._keep(" ".join((pod.key, uid, *facts.ips)), facts)
            elif not unclear and now - pod.since >= START_SECONDS:
                del self._unaddressed[uid]
        if self._crowded is not None and now - self._crowded >= START_SECONDS and held.keys() <= known:
            self._crowded = None
        return touched

    def _close(self) -> bool:
        """Have addresses that no pod is known to have closed, or open; return whether that changed."""
        before = self._table.unknown_closed
        self._table.unknown_closed = self._crowded is not None or any(p.selected for p in self._unaddressed.values())
        return before != self._table.unknown_closed

    def _keep(self, key: str, pod: PodFacts) -> bool:
        self._addressed[key] = pod
        for ip in pod.ips:
            self._with_address.setdefault(ip, set()).add(key)
        return self._table.set_pod(key, pod)

    def _forget(self, key: str) -> bool:
        for ip in self._addressed.pop(key).ips:
            self._with_address[ip].discard(key)
            if not self._with_address[ip]:
                del self._with_address[ip]
        return self._table.set_pod(key, None)

    def _forget_addresses(self, facts: PodFacts | None) -> bool:
        """Forget the pods that had addresses which another pod has now."""
        touched = False
        for ip in facts.ips if facts is not None else ():
            for key in list(self._with_address.get(ip, ())):
                touched |= self._forget(key)
        return touched


def _is_left(old: PodFacts, facts: PodFacts | None, deleted: bool) -> bool:
    """Tell whether a pod as it was known may still run beside what is known under its name now."""
    if deleted or (facts is not None and facts.uid != old.uid):
        return True
    return bool(old.ips) and not (facts and set(old.ips) & set(facts.ips))
