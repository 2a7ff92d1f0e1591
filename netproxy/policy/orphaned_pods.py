"""Orphaned pods: their objects are gone while their containers run, as after a forced deletion.

They stay under their policies, with their last labels, until the CNI plugins have released their addresses, or given one to
another pod: the object of that one may not be known yet. A pod that was deleted before its address was known is not among
them: the address stays closed, as any that no known pod has (base_chains.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator

from kube.clock import Clock
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.work_queue import WorkQueue

log = logging.getLogger(__name__)
CHECK_PERIOD = 2.0
"""Seconds between checks whether the addresses of such pods are still in use."""
SLICE = 100
"""Pods between two suspensions."""


class OrphanedPods:
    """Keeps such pods in a table.

    `addresses_here` returns the addresses that CNI plugins have given. It may raise OSError.
    """

    def __init__(
        self,
        table: PolicyTable,
        queue: WorkQueue,
        clock: Clock,
        addresses_here: Callable[[], Collection[str]],
        on_change: Callable[[], None],
    ) -> None:
        self._table, self._queue, self._clock = table, queue, clock
        self._addresses_here, self._on_change = addresses_here, on_change
        self._addressed: dict[str, PodFacts] = {}
        self._with_address: dict[str, set[str]] = {}
        """Address -> keys of the pods above."""
        self._logged_error = ""
        self._check = asyncio.Event()

    def pod_changes(self, key: str, facts: PodFacts | None, *, deleted: bool) -> bool:
        """Record a change of a pod before the table stores it; None for one that has finished or was deleted.

        Returns whether rules depend on it.
        """
        touched, old = self._forget_addresses(facts), self._table.known.pods.get(key)
        if old is not None and old.here and old.ips and _may_still_run(old, facts, deleted=deleted):
            self._check.set()
            touched |= self._store(" ".join((key, old.uid, *old.ips)), old)
        return touched

    def forget_where(self, ended: Callable[[PodFacts], bool]) -> bool:
        """Forget the pods that are known to have ended; return whether rules depend on any."""
        gone = [key for key, pod in self._addressed.items() if ended(pod)]
        return any([self._forget(key) for key in gone])

    def clear(self) -> None:
        """Forget all pods, when the table no longer has any."""
        self._addressed.clear()
        self._with_address.clear()

    async def run(self) -> None:
        """Forget pods whose addresses are released, until cancelled."""
        while True:
            await (self._clock.sleep(CHECK_PERIOD) if self._addressed else self._check.wait())
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

    def _settle(self, in_use: Collection[str], settled: asyncio.Event) -> Iterator[None]:
        """Forget pods whose addresses are released."""
        try:
            touched = False
            for count, (key, pod) in enumerate(list(self._addressed.items())):
                if key in self._addressed and not any(ip in in_use for ip in pod.ips):
                    touched |= self._forget(key)
                if count % SLICE == SLICE - 1:
                    yield
            if touched:
                self._on_change()
        finally:
            settled.set()

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


def _may_still_run(old: PodFacts, facts: PodFacts | None, *, deleted: bool) -> bool:
    """Return whether a pod as it was known may still run beside what is known under its name now."""
    if deleted or (facts is not None and facts.uid != old.uid):
        return True
    return not (facts and set(old.ips) & set(facts.ips))
