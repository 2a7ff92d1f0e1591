"""Network policy on this node: what the API says in, two tables out.

Pods and namespaces of the whole cluster are followed only while there is a policy; a cluster without one costs one idle
watch. Until pods and namespaces are known the table of an earlier life stays as it is, and this node's pod network is
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
from netproxy.policy.failures import Failures, Report
from netproxy.policy.family_writer import RETRY, FamilyWriter
from netproxy.policy.intake import Intake
from netproxy.policy.objects import SlimNamespace, SlimPod, facts_of
from netproxy.policy.remaining_pods import RemainingPods
from netproxy.policy.rules import Rulesets
from netproxy.policy.sync import PolicyBackend
from netproxy.policy.table import PolicyTable
from netproxy.policy.turns import Turns

log = logging.getLogger(__name__)
GATHERED = 20
"""Turns of the loop for which a write waits at most for changes that are being taken in."""


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
        self._intake = Intake(self._table, self._policies.get, self._failures, clock)
        self._families = [
            FamilyWriter(each, Rulesets(self._table, each.family, bridge=bridge, ipvs=ipvs), self._failures, clock)
            for each in backends
        ]
        self._turns = Turns()
        """What the API says, taken in piece by piece: nothing else changes pods and namespaces of the table."""
        self._wake = asyncio.Event()
        self._remaining = RemainingPods(self._table, self._turns, clock, addresses_here, self._wake.set)
        self._given_up = False
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
            group.create_task(self._turns.run(), name="take in network policies")
            await self._policies.wait_synced()
            self._policies.subscribe(self._policy_changed)
            await self._turns.done()
            while True:
                if not self._table.policies:
                    await self._stand_by()
                else:
                    async with self._following_pods():
                        await self._enforce()

    async def wait_started(self, seconds: float) -> None:
        """Let no pod start before the policies there are.

        The wait until they are known is for so long at most, and only once: a server that shows no policies must not keep a
        node from serving. Policies that are known and cannot be put in force do.
        """
        if self._given_up:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._policies.wait_synced()
        except TimeoutError:
            self._given_up = True
            log.error("network policies are not known yet: pods start without them")
            return
        await self.started.wait()

    async def verify(self) -> None:
        """Look once whether others changed our tables, and repair them."""
        repaired = False
        self._turns.add(self._look_at_closed)
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
        self._turns.add(lambda: self._take_policy(change))

    def _pod_changed(self, change: Change[SlimPod]) -> None:
        self._turns.add(lambda: self._take_pod(change))

    def _namespace_changed(self, change: Change[SlimNamespace]) -> None:
        self._turns.add(lambda: self._take_namespace(change))

    def _take_policy(self, change: Change[networking_v1.NetworkPolicy]) -> Iterator[None]:
        if change.type != "DELETED" and change.old is not None and change.old.spec == change.new.spec:
            return  # only its metadata changed
        self._failures.forget(change.key)
        try:
            if change.type == "DELETED":
                self._intake.delete(change.key)
            else:
                yield from self._intake.put(change.key, change.new)
            for family in self._families:
                family.changed(change.key, gone=change.type == "DELETED")
        finally:  # what was closed before anything failed is to be written
            self._wake.set()
        log.info("network policy %s: %s", change.key, change.type.lower())
        metrics.POLICIES.set(len(self._table.policies))

    def _take_pod(self, change: Change[SlimPod]) -> Iterator[None]:
        facts = None if change.type == "DELETED" else facts_of(change.new, self._node_name)
        touched = self._remaining.pod_changes(change.key, facts, deleted=change.type == "DELETED")
        touched |= self._table.set_pod(change.key, facts) | self._intake.relieve()
        if touched:
            self._wake.set()
        yield from ()

    def _forget_pods(self) -> Iterator[None]:
        self._table.clear_pods()
        self._remaining.clear()
        yield from ()

    def _look_at_closed(self) -> Iterator[None]:
        if (yield from self._intake.look()):
            self._wake.set()

    def _take_namespace(self, change: Change[SlimNamespace]) -> Iterator[None]:
        labels = None if change.type == "DELETED" else change.new.metadata.labels
        touched = yield from self._table.take_namespace(change.key, labels)
        if self._intake.relieve() or touched:
            self._wake.set()

    # -- changes out ----------------------------------------------------------------------------------------------
    async def _stand_by(self) -> None:
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
                group.create_task(self._remaining.run(), name="follow pods without an object"),
            ]
            try:
                await namespaces.wait_synced()
                namespaces.subscribe(self._namespace_changed)
                await pods.wait_synced()
                pods.subscribe(self._pod_changed)
                await self._turns.done()
                log.info("enforcing %d network policies", len(self._table.policies))
                yield
            finally:
                for task in tasks:
                    task.cancel()
                self._turns.add(self._forget_pods)

    async def _enforce(self) -> None:
        while self._table.policies:
            self._wake.clear()
            began = self._clock.monotonic()
            self._intake.limit_node()
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
            for _ in range(GATHERED):
                await asyncio.sleep(0)
                if not self._turns.busy:
                    break
