"""Orphaned pods: their objects are gone while their containers run, as after a forced deletion.

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
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.work_queue import WorkQueue

log = logging.getLogger(__name__)
CHECK_PERIOD = 2.0
"""Seconds between checks whether the addresses of such pods are still in use."""
START_TIMEOUT = 300.0
"""Seconds in which a pod that was deleted without an address may still get one: a runtime has four minutes for a sandbox."""
MAX_WITHOUT_ADDRESS = 1000
"""Pods without an address that are known one by one. Beyond, all addresses that nobody is known to have are closed."""
SLICE = 100
"""Pods between two suspensions."""


@dataclass(frozen=True, slots=True)
class _WithoutAddress:
    """A pod that was deleted before its address was known."""

    key: str
    facts: PodFacts
    selected: bool
    """True if a policy selected it then."""
    since: float


class OrphanedPods:
    """Keeps such pods in a table.

    `addresses_here` returns the addresses that CNI plugins have given, each with its pod's UID, "" where that is not known. It
    may raise OSError.
    """

    def __init__(
        self,
        table: PolicyTable,
        queue: WorkQueue,
        clock: Clock,
        addresses_here: Callable[[], Mapping[str, str]],
        on_change: Callable[[], None],
    ) -> None:
        self._table, self._queue, self._clock = table, queue, clock
        self._addresses_here, self._on_change = addresses_here, on_change
        self._addressed: dict[str, PodFacts] = {}
        self._with_address: dict[str, set[str]] = {}
        """Address -> keys of the pods above."""
        self._without_address: dict[str, _WithoutAddress] = {}
        """By UID."""
        self._overflowed_at: float | None = None
        """The time when there was last one pod too many."""
        self._logged_error = ""
        self._check = asyncio.Event()

    def pod_changes(self, key: str, facts: PodFacts | None, *, deleted: bool) -> bool:
        """Record a change of a pod before the table stores it; None for one that has finished or was deleted.

        Returns whether rules depend on it.
        """
        touched, old = self._forget_addresses(facts), self._table.known.pods.get(key)
        if old is not None and old.here and _may_still_run(old, facts, deleted):
            self._check.set()
            if old.ips:
                touched |= self._store(" ".join((key, old.uid, *old.ips)), old)
            elif len(self._without_address) < MAX_WITHOUT_ADDRESS:
                selected = self._table.is_selected(key)
                self._without_address[old.uid] = _WithoutAddress(key, old, selected, self._clock.monotonic())
            else:
                self._overflowed_at = self._clock.monotonic()
        return self._close() or touched

    def clear(self) -> None:
        """Forget all pods, when the table no longer has any."""
        self._addressed.clear()
        self._with_address.clear()
        self._without_address.clear()
        self._overflowed_at = None
        self._close()

    async def run(self) -> None:
        """Forget pods whose addresses are released, until cancelled."""
        while True:
            waiting = self._addressed or self._without_address or self._overflowed_at is not None
            await (self._clock.sleep(CHECK_PERIOD) if waiting else self._check.wait())
            self._check.clear()
            try:
                in_use = await asyncio.to_thread(self._addresses_here)
            except OSError as error:
                if str(error) != self._logged_error:
                    log.error("results of CNI plugins cannot be read: %s", error)
                self._logged_error = str(error)
                continue
            self._logged_error = ""
            settled = asyncio.Event()
            self._queue.add(lambda in_use=in_use, settled=settled: self._settle(in_use, settled))  # type: ignore[misc]
            await settled.wait()

    def _settle(self, in_use: Mapping[str, str], settled: asyncio.Event) -> Iterator[None]:
        """Forget pods whose addresses are released; keep those without an address under that of their UID."""
        try:
            touched = False
            for count, (key, pod) in enumerate(list(self._addressed.items())):
                if key in self._addressed and not any(ip in in_use for ip in pod.ips):
                    touched |= self._forget(key)
                if count % SLICE == SLICE - 1:
                    yield
            touched |= self._settle_unaddressed(in_use)
            if self._close() or touched:
                self._on_change()
        finally:
            settled.set()

    def _settle_unaddressed(self, in_use: Mapping[str, str]) -> bool:
        touched, now = False, self._clock.monotonic()
        given: dict[str, list[str]] = {}
        for ip, uid in in_use.items():
            given.setdefault(uid, []).append(ip)
        known = {ip for pod in self._table.known.here.values() for ip in pod.ips}
        unclear = any(ip not in known for ip in given.get("", ()))
        for uid, pod in list(self._without_address.items()):
            if uid and uid in given:
                del self._without_address[uid]
                facts = dataclasses.replace(pod.facts, ips=tuple(given[uid]))
                touched |= self._store(" ".join((pod.key, uid, *facts.ips)), facts)
            elif not unclear and now - pod.since >= START_TIMEOUT:
                del self._without_address[uid]
        if self._overflowed_at is not None and now - self._overflowed_at >= START_TIMEOUT and in_use.keys() <= known:
            self._overflowed_at = None
        return touched

    def _close(self) -> bool:
        """Close or open addresses that no pod is known to have; return whether that changed."""
        before = self._table.unknown_closed
        self._table.unknown_closed = self._overflowed_at is not None or any(
            p.selected for p in self._without_address.values()
        )
        return before != self._table.unknown_closed

    def _store(self, key: str, pod: PodFacts) -> bool:
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


def _may_still_run(old: PodFacts, facts: PodFacts | None, deleted: bool) -> bool:
    """Return whether a pod as it was known may still run beside what is known under its name now."""
    if deleted or (facts is not None and facts.uid != old.uid):
        return True
    return bool(old.ips) and not (facts and set(old.ips) & set(facts.ips))
