"""Former addresses of other nodes' pods: deletion of their flows with isolated pods of this node.

Policies let pass what belongs to an accepted connection, and a flow of UDP, SCTP or ICMP does not end with the pod that it
led to. When a pod of another node no longer has an address (it was deleted, has finished, was replaced, or has another
address), the address is first taken out of the kernel's sets; then its flows are deleted. Until that is done no other pod is a
peer by this address, for its own connections would be deleted too. A pod with other labels keeps its flows.

A node gives an address to its next pod before the API server shows that the former one is gone. So an address belongs to the
last pod that got it: from then on the former pod is no peer by it, and loses nothing when it is gone.

A node may name any address in the statuses of its pods. So one in another node's pod range is not believed, and a pod takes an
address from a former one only if it is in its own node's range.

All addresses lost meanwhile are one batch, which costs one listing of the flows, another for each that found some
(podnet/pod_flows.py), and no process. Batches take a tenth of the time, and more only if one takes longer than a second: then
addresses do not wait longer still.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator

from kube.clock import Clock
from netproxy.policy.pod_facts import PodFacts
from netproxy.policy.table import PolicyTable
from netproxy.policy.work_queue import WorkQueue

log = logging.getLogger(__name__)
MIN_PAUSE, MAX_PAUSE = 0.2, 10.0
"""Seconds between two batches."""
PAUSES = 9
"""Length of a pause within these limits, in durations of the batch before it."""
SLICE = 100
"""Pods between two suspensions."""
DeleteFlows = Callable[[Collection[str], Collection[str]], Awaitable[None]]
"""Deletes the flows between any of some addresses and any of others."""


async def keep_flows(addresses: Collection[str], others: Collection[str]) -> None:
    """Delete no flows, where no kernel has any."""


class FormerAddresses:
    """Deletes the flows of addresses that pods of other nodes had.

    `wait_written` returns once the kernel has what the table holds now, or after a time in which that fails; `set_pod`
    stores a pod in the table, and returns whether rules depend on it.
    """

    def __init__(
        self,
        table: PolicyTable,
        queue: WorkQueue,
        clock: Clock,
        delete_flows: DeleteFlows,
        wait_written: Callable[[], Awaitable[object]],
        set_pod: Callable[[str, PodFacts | None], bool],
        on_change: Callable[[], None],
        node_of: Callable[[str], str] = lambda ip: "",
    ) -> None:
        """`node_of` returns the node in whose pod range an address is, "" if none is known."""
        self._node_of = node_of
        self._table, self._queue, self._clock = table, queue, clock
        self._delete_flows, self._wait_written = delete_flows, wait_written
        self._set_pod, self._on_change = set_pod, on_change
        self._lost, self._deleting = set[str](), set[str]()
        """Addresses of the next batch and of the one under way."""
        self._withheld: dict[str, PodFacts] = {}
        """Pods by key that have such an address, or one that another pod owns, as the API has them."""
        self._owners: dict[str, str] = {}
        """Address -> key of the last pod of another node that got it."""
        self._wake = asyncio.Event()

    def facts(self, key: str, pod: PodFacts | None) -> PodFacts | None:
        """Record a change of a pod before the table stores it, None for one that is gone.

        Return it without the addresses that have flows of a former pod.
        """
        old = self._table.known.pods.get(key)
        if old is not None and not old.here:
            same = pod is not None and not pod.here and pod.uid == old.uid
            self._lose(set(old.ips).difference(pod.ips if pod is not None and same else ()))
        self._change_owners(key, None if pod is None or pod.here else pod)
        if pod is None or pod.here:
            self._withheld.pop(key, None)
            return pod
        return self._usable(key, pod)

    def ranges_changed(self) -> Iterator[None]:
        """Store the pods of other nodes without addresses that are in another node's range now, and with those no longer."""
        touched = False
        for count, key in enumerate(list(self._table.known.pods), 1):
            pod, stored = self._last(key), self._table.known.pods.get(key)
            if pod is not None and stored is not None:
                self._change_owners(key, pod)
                self._lose({ip for ip in stored.ips if self._node_of(ip) not in ("", pod.node)})
                touched |= self._set_pod(key, self._usable(key, pod))
            if not count % SLICE:
                yield
        if touched:
            self._on_change()

    def clear(self) -> None:
        """Forget all addresses, when pods are no longer watched."""
        self._lost, self._deleting = set(), set()
        self._withheld.clear()
        self._owners.clear()

    async def run(self) -> None:
        """Delete flows until cancelled."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            began = self._clock.monotonic()
            self._deleting, self._lost = self._lost, set()
            if self._deleting and self._isolated():
                await self._wait_written()
                try:
                    await self._delete_flows(self._deleting - self._here(), self._isolated())
                except Exception:  # policies are enforced all the same
                    log.exception("flows of deleted pods stay until they time out")
            settled = asyncio.Event()
            self._queue.add(lambda settled=settled: self._release(settled))  # type: ignore[misc]
            await settled.wait()
            await self._clock.sleep(pause_after(self._clock.monotonic() - began))

    def _lose(self, addresses: Collection[str]) -> None:
        if addresses:
            self._lost.update(addresses)
            self._wake.set()

    def _change_owners(self, key: str, pod: PodFacts | None) -> None:
        """Record the owner of each address that a pod has, or had before."""
        old = self._last(key)
        for ip in old.ips if old is not None else ():
            if self._owners.get(ip) == key and (pod is None or ip not in pod.ips):
                del self._owners[ip]
        if pod is None:
            return
        for ip in pod.ips:
            owner = self._owners.get(ip, key)
            former = self._last(owner) if owner != key else None
            if self._gets(ip, old, pod, former):
                self._owners[ip] = key
                if former is not None:
                    self._take(ip, owner, former)

    def _gets(self, ip: str, old: PodFacts | None, pod: PodFacts, former: PodFacts | None) -> bool:
        """Return whether a pod, which was as `old`, is the owner of an address that the former pod owned, if there is one."""
        node = self._node_of(ip)
        if node not in ("", pod.node):
            return False
        if former is None or node not in ("", former.node):
            return True
        return bool(node) and _got_later(ip, old, pod, former)

    def _take(self, ip: str, owner: str, former: PodFacts) -> None:
        """Store the former owner of an address without it."""
        stored = self._table.known.pods.get(owner)
        if stored is not None and ip in stored.ips:
            self._lose({ip})
        if self._set_pod(owner, self._usable(owner, former)):
            self._on_change()

    def _last(self, key: str) -> PodFacts | None:
        """Return a pod of another node as the API had it last."""
        pod = self._withheld.get(key) or self._table.known.pods.get(key)
        return None if pod is None or pod.here else pod

    def _usable(self, key: str, pod: PodFacts) -> PodFacts:
        """Return a pod without the addresses that another pod owns, or that have flows of a former pod."""
        ips = tuple(
            ip
            for ip in pod.ips
            if self._node_of(ip) in ("", pod.node)
            and self._owners.setdefault(ip, key) == key
            and ip not in self._lost
            and ip not in self._deleting
        )
        if ips == pod.ips:
            self._withheld.pop(key, None)
            return pod
        self._withheld[key] = pod
        return dataclasses.replace(pod, ips=ips)

    def _release(self, settled: asyncio.Event) -> Iterator[None]:
        """Store the pods that have addresses of the batch."""
        try:
            self._deleting, touched = set(), False
            for count, (key, pod) in enumerate(list(self._withheld.items()), 1):
                touched |= self._set_pod(key, self._usable(key, pod))
                if not count % SLICE:
                    yield
            if touched:
                self._on_change()
        finally:
            settled.set()

    def _isolated(self) -> set[str]:
        """Return the addresses of this node's pods that a policy selects."""
        return {ip for _, pods in self._table.subjects_here() for pod in pods.values() for ip in pod.ips}

    def _here(self) -> set[str]:
        """Return the addresses of this node's pods, whose flows are deleted before another pod here gets them."""
        return {ip for pod in self._table.known.here.values() for ip in pod.ips}


def pause_after(duration: float) -> float:
    """Return the seconds between a batch of this duration and the next one."""
    return min(MAX_PAUSE, max(MIN_PAUSE, PAUSES * duration))


def _got_later(ip: str, old: PodFacts | None, pod: PodFacts, former: PodFacts) -> bool:
    """Return whether a pod that has an address, and was as `old` before, got it later than the former pod."""
    if old is not None and old.uid == pod.uid:
        return ip not in old.ips
    return pod.created >= former.created
