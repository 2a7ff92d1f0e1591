"""Enforces network policies on this node: follows the API and writes a table an IP family.

Pods and namespaces of the whole cluster are followed only while there is a policy; a cluster without one costs one idle
watch. Until pods and namespaces are known the table of an earlier process stays as it is, and this node's pod network is
not handed to the runtime. A pod that a policy selects is seen here when it is bound to the node, before it has an address:
from then until its address is in its status, addresses of the node's range that no pod is known to have are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

from kube.api import networking_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.errors import WriteError
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.failures import Failures, Report
from netproxy.policy.family_writer import RETRY, FamilyWriter
from netproxy.policy.orphaned_pods import OrphanedPods
from netproxy.policy.pod_facts import facts_of
from netproxy.policy.policy_loader import PolicyLoader
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.table import PolicyTable
from netproxy.policy.work_queue import WorkQueue
from netproxy.slim_objects import SlimNamespace, SlimPod

log = logging.getLogger(__name__)
MAX_GATHER_TURNS = 20
"""Maximum of iterations of the event loop for which a write waits for changes that are being processed."""


class PolicyEnforcer:
    """Keeps the backends (one an IP family) at what policies, pods and namespaces say."""

    def __init__(
        self,
        client: Client,
        node_name: str,
        backends: Sequence[PolicyBackend],
        *,
        bridge: str = "cni0",
        ipvs: bool = False,
        clock: Clock = SYSTEM,
        on_repair: Callable[[], None] = lambda: None,
        on_failed: Report = lambda policy, why: None,
        addresses_here: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self._client, self._node_name, self._clock = client, node_name, clock
        self._on_repair = on_repair
        self._table = PolicyTable()
        self._policies = Informer(client, networking_v1.NetworkPolicy, clock=clock)
        self._failures = Failures(self._table, self._policies.get, on_failed)
        self._loader = PolicyLoader(self._table, self._policies.get, self._failures, clock)
        self._families = [
            FamilyWriter(
                each, RulesetBuilder(self._table, each.family, bridge=bridge, ipvs=ipvs), self._failures, clock
            )
            for each in backends
        ]
        self._queue = WorkQueue()
        """Changes of the API, stored one by one: nothing else changes pods and namespaces of the table."""
        self._wake = asyncio.Event()
        self._orphaned = OrphanedPods(self._table, self._queue, clock, addresses_here, self._wake.set)
        self._wait_timed_out = False
        self.started = asyncio.Event()
        """Set once the policies there were at the start are in force, or it is known that there is none."""

    def set_node_ranges(self, cidrs: Sequence[str]) -> None:
        """Set the ranges of addresses of this node's pods."""
        for family in self._families:
            family.set_node_ranges(cidrs)
        self._wake.set()

    async def run(self) -> None:
        """Enforce until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._policies.run(), name="follow network policies")
            group.create_task(self._queue.run(), name="take in network policies")
            await self._policies.wait_synced()
            self._policies.subscribe(self._policy_changed)
            await self._queue.join()
            while True:
                if not self._table.policies:
                    await self._wait_for_policies()
                else:
                    async with self._following_pods():
                        await self._enforce()

    async def wait_started(self, seconds: float) -> None:
        """Let no pod start before the policies there are.

        The wait until they are known has this limit, and happens only once: a server that shows no policies must not keep a
        node from serving. Policies that are known and cannot be put in force do.
        """
        if self._wait_timed_out:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._policies.wait_synced()
        except TimeoutError:
            self._wait_timed_out = True
            log.error("network policies are not known yet: pods start without them")
            return
        await self.started.wait()

    async def verify(self) -> None:
        """Repair changes of our tables by others."""
        repaired = False
        self._queue.add(self._retry_closed)
        for family in self._families:
            if family.reopen():
                self._wake.set()
        for family in self._families:
            try:
                repaired = await family.backend.verify() or repaired
            except WriteError as error:
                log.error("network policies cannot be repaired yet: %s", error)
        if repaired:
            self._on_repair()

    # -- changes in -----------------------------------------------------------------------------------------------
    def _policy_changed(self, change: Change[networking_v1.NetworkPolicy]) -> None:
        self._queue.add(lambda: self._store_policy(change))

    def _pod_changed(self, change: Change[SlimPod]) -> None:
        self._queue.add(lambda: self._store_pod(change))

    def _namespace_changed(self, change: Change[SlimNamespace]) -> None:
        self._queue.add(lambda: self._store_namespace(change))

    def _store_policy(self, change: Change[networking_v1.NetworkPolicy]) -> Iterator[None]:
        if change.type != "DELETED" and change.old is not None and change.old.spec == change.new.spec:
            return  # only its metadata changed
        self._failures.forget(change.key)
        try:
            if change.type == "DELETED":
                self._loader.delete(change.key)
            else:
                yield from self._loader.put(change.key, change.new)
            for family in self._families:
                family.changed(change.key, gone=change.type == "DELETED")
        finally:  # what was closed before anything failed is to be written
            self._wake.set()
        log.info("network policy %s: %s", change.key, change.type.lower())
        metrics.POLICIES.set(len(self._table.policies))

    def _store_pod(self, change: Change[SlimPod]) -> Iterator[None]:
        facts = None if change.type == "DELETED" else facts_of(change.new, self._node_name)
        touched = self._orphaned.pod_changes(change.key, facts, deleted=change.type == "DELETED")
        touched |= self._table.set_pod(change.key, facts) | self._loader.close_failing()
        if touched:
            self._wake.set()
        yield from ()

    def _forget_pods(self) -> Iterator[None]:
        self._table.clear_pods()
        self._orphaned.clear()
        yield from ()

    def _retry_closed(self) -> Iterator[None]:
        if (yield from self._loader.retry_next()):
            self._wake.set()

    def _store_namespace(self, change: Change[SlimNamespace]) -> Iterator[None]:
        labels = None if change.type == "DELETED" else change.new.metadata.labels
        touched = yield from self._table.set_namespace_in_slices(change.key, labels)
        if self._loader.close_failing() or touched:
            self._wake.set()

    # -- changes out ----------------------------------------------------------------------------------------------
    async def _wait_for_policies(self) -> None:
        """Without any policy: no table, no watch of pods."""
        for family in self._families:
            await family.remove()
        self.started.set()
        while not self._table.policies:
            self._wake.clear()
            await self._wake.wait()

    @contextlib.asynccontextmanager
    async def _following_pods(self) -> AsyncIterator[None]:
        pods = Informer(self._client, SlimPod, clock=self._clock)
        namespaces = Informer(self._client, SlimNamespace, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(namespaces.run(), name="follow namespaces"),
                group.create_task(pods.run(), name="follow pods"),
                group.create_task(self._orphaned.run(), name="follow pods without an object"),
            ]
            try:
                await namespaces.wait_synced()
                namespaces.subscribe(self._namespace_changed)
                await pods.wait_synced()
                pods.subscribe(self._pod_changed)
                await self._queue.join()
                log.info("enforcing %d network policies", len(self._table.policies))
                yield
            finally:
                for task in tasks:
                    task.cancel()
                self._queue.add(self._forget_pods)

    async def _enforce(self) -> None:
        while self._table.policies:
            self._wake.clear()
            began = self._clock.monotonic()
            self._loader.limit_node()
            self._failures.report()
            written = [await family.write() for family in self._families]
            if all(written):
                metrics.POLICY_SYNC.observe(self._clock.monotonic() - began)
                self.started.set()
            else:
                self._wake.set()
                await self._clock.sleep(RETRY)
            await self._wake.wait()
            # Some turns later all events of the same read are in: they make one change.
            for _ in range(MAX_GATHER_TURNS):
                await asyncio.sleep(0)
                if not self._queue.busy:
                    break
