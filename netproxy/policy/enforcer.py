"""Enforces network policies on this node: stores changes of the API in a table, which is written for each IP family.

Pods and namespaces of the whole cluster are followed only while there is a policy, and for a minute after; a cluster without
one costs one idle watch. Until pods, namespaces and the node's ranges are known the table of an earlier process stays as it is,
and this node's pod network is not handed to the runtime. Addresses of the node's ranges that no pod is known to have are
closed. A pod has its address from the CNI plugins' result some milliseconds after that is written, usually before its first
container runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial

from kube import cancellation
from kube.api import networking_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.daemon_roles import NETWORK_POLICY
from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.pod_addresses import GivenAddresses
from netproxy.policy.address_changes import AddressChange, AddressChanges
from netproxy.policy.addresses_here import AddressesHere
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.failures import Failures, Report
from netproxy.policy.family_writer import FamilyWriter
from netproxy.policy.former_addresses import DeleteFlows, FormerAddresses, keep_flows
from netproxy.policy.orphaned_pods import OrphanedPods
from netproxy.policy.pod_facts import PodFacts, facts_of
from netproxy.policy.policy_loader import PolicyLoader
from netproxy.policy.policy_search import namespace_of
from netproxy.policy.rules import RulesetBuilder
from netproxy.policy.table import PolicyTable
from netproxy.policy.table_writer import TableWriter
from netproxy.policy.work_queue import WorkQueue
from netproxy.slim_objects import SlimNamespace, SlimPod

log = logging.getLogger(__name__)
KEEP_FOLLOWING = 60.0
"""Seconds for which pods are followed after the last policy is gone: who creates and deletes one all the time makes no node
list all pods of the cluster each time."""
MAX_STORE = 10.0
"""Seconds until addresses which none may use must be stored. They wait only for the change that is being stored."""
ADDRESSES, RETRIES = "taken addresses", "closed policies"
"""Lanes that are no namespace's: of addresses taken from pods, and of tries that may cost as much as any policy."""
NODE_LIST_TIMEOUT = 10.0
"""Seconds that pods wait for the list of nodes."""


class PolicyEnforcer:
    """Reconciles the backends (one for each IP family) with policies, pods and namespaces."""

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
        addresses_here: Callable[[], Collection[str]] = tuple,
        delete_flows: DeleteFlows = keep_flows,
        node_of: Callable[[str], str] = lambda ip: "",
        wait_nodes: Callable[[], Awaitable[object]] = lambda: asyncio.sleep(0),
    ) -> None:
        """`node_of` returns the node in whose pod range an address is, and `wait_nodes` when nodes are known."""
        self._client, self._node_name, self._clock = client, node_name, clock
        self._on_repair = on_repair
        self._table = PolicyTable()
        self._policies = Informer(client, networking_v1.NetworkPolicy, granted_by=NETWORK_POLICY, clock=clock)
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
        self._writer = writer = TableWriter(
            self._table, self._families, self._loader, self._failures, self._queue, clock
        )
        self._addresses = AddressesHere()
        self._orphaned = OrphanedPods(self._table, self._queue, clock, addresses_here, writer.wake)
        self._former = FormerAddresses(
            self._table, self._queue, clock, delete_flows, writer.wait_written, self._set_pod, writer.wake, node_of
        )
        self._wait_nodes, self._ranges_changed = wait_nodes, False
        self._address_changes = AddressChanges()
        self._waiting: dict[str, Change[networking_v1.NetworkPolicy]] = {}
        """Changes of policies that are not stored yet, of each policy all together."""
        self._wait_timed_out = False
        self.started = writer.started

    def set_node_ranges(self, cidrs: Sequence[str]) -> None:
        """Set the ranges of addresses of this node's pods."""
        self._writer.set_node_ranges(cidrs)

    def pod_ranges_changed(self) -> None:
        """Judge addresses of other nodes' pods again: `node_of` may return another node for them."""
        if self._table.policies and not self._ranges_changed:
            self._ranges_changed = True
            self._queue.add(self._judge_ranges)

    def _judge_ranges(self) -> Iterator[None]:
        self._ranges_changed = False
        yield from self._former.ranges_changed()

    async def set_given_addresses(
        self, given: GivenAddresses, closed: Collection[str] = (), opened: Collection[str] = ()
    ) -> None:
        """Set the addresses that CNI plugins gave to pods of this node; close those that none may use, open others again.

        Return when that is in force, or cannot be put in force in time. Raise TimeoutError if addresses that none may use are
        not even stored in time: they stay closed in the kernel, or are those of a pod that is gone, until they are.
        Addresses of pods whose namespace's policies are still being stored are closed until then.
        """
        namespaces = self._address_changes.report(given, closed, opened)
        waiting = self._queue.lanes()
        stored, in_force = asyncio.Event(), [asyncio.Event()]
        self._queue.add(lambda: self._store_addresses(self._address_changes.taken, in_force[0], stored), ADDRESSES)
        for namespace in namespaces:
            # Policies of others' namespaces do not delay a pod; its own are in force before it has its address.
            change, event = partial(self._address_changes.given, namespace), asyncio.Event()
            after = () if namespace else waiting
            self._queue.add(partial(self._store_addresses, change, event), lane=namespace, after=after)
            if namespace not in waiting:  # otherwise its policies would delay the next address of any other
                in_force.append(event)
        try:
            async with asyncio.timeout(MAX_STORE):
                await stored.wait()
        except TimeoutError:
            raise TimeoutError("policies cannot store them yet") from None
        for each in in_force:
            await self._writer.wait_in_force(each)

    async def run(self) -> None:
        """Enforce until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self._policies.run, "follow network policies")
            cancellation.start(group, self._queue.run, "take in network policies")
            await self._policies.wait_synced()
            self._policies.subscribe(self._policy_changed)
            await self._queue.join()
            while True:
                if not self._table.policies:
                    await self._writer.run_without_policies()
                async with self._following_pods():
                    await self._writer.run()
                    while await self._writer.run_without_policies(KEEP_FOLLOWING):
                        await self._writer.run()

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
        self._queue.add(self._retry_closed, RETRIES)
        if await self._writer.verify():
            self._on_repair()

    # -- changes --------------------------------------------------------------------------------------------------
    def _policy_changed(self, change: Change[networking_v1.NetworkPolicy]) -> None:
        """Queue a change in the lane of its namespace. Of a policy that changes again meanwhile only the last state is read."""
        waiting = self._waiting.get(change.key)
        self._waiting[change.key] = change if waiting is None else Change(change.type, waiting.old, change.new)
        if waiting is None:
            self._queue.add(lambda: self._store_policy(change.key), lane=namespace_of(change.key))

    def _pod_changed(self, change: Change[SlimPod]) -> None:
        self._queue.add(lambda: self._store_pod(change), lane=namespace_of(change.key))

    def _namespace_changed(self, change: Change[SlimNamespace]) -> None:
        self._queue.add(lambda: self._store_namespace(change), lane=change.key)

    def _store_policy(self, key: str) -> Iterator[None]:
        change = self._waiting.pop(key)
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
            self._writer.wake()
        log.info("network policy %s: %s", change.key, change.type.lower())
        metrics.POLICIES.set(len(self._table.policies))

    def _store_pod(self, change: Change[SlimPod]) -> Iterator[None]:
        deleted = change.type == "DELETED"
        facts = self._addresses.facts(change.key, None if deleted else facts_of(change.new, self._node_name))
        facts = self._former.facts(change.key, facts)
        touched = self._set_pod(change.key, facts, deleted=deleted)
        touched |= yield from self._loader.close_failing()
        if touched:
            self._writer.wake()

    def _set_pod(self, key: str, facts: PodFacts | None, *, deleted: bool = False) -> bool:
        touched = self._orphaned.pod_changes(key, facts, deleted=deleted)
        return self._table.set_pod(key, facts) or touched

    def _store_addresses(
        self, change: Callable[[], AddressChange], in_force: asyncio.Event, stored: asyncio.Event | None = None
    ) -> Iterator[None]:
        given, closed, opened = change()
        touched = False
        try:
            for key, facts in self._addresses.set_given(given):
                touched |= self._set_pod(key, facts)
            touched |= self._orphaned.forget_where(self._addresses.given_to_another)
            touched |= self._table.change_unusable(closed, opened)
            touched |= yield from self._loader.close_failing()
            if self._table.policies and (touched or self._writer.pending):
                self._writer.set_when_written(in_force)
            else:
                in_force.set()
        finally:
            if stored is not None:
                stored.set()

    def _forget_pods(self) -> Iterator[None]:
        self._table.clear_pods()
        self._addresses.clear()
        self._writer.release()
        self._orphaned.clear()
        self._former.clear()
        yield from ()

    def _retry_closed(self) -> Iterator[None]:
        if (yield from self._loader.retry_next()):
            self._writer.wake()

    def _store_namespace(self, change: Change[SlimNamespace]) -> Iterator[None]:
        labels = None if change.type == "DELETED" else change.new.metadata.labels
        touched = yield from self._table.set_namespace_in_slices(change.key, labels)
        if (yield from self._loader.close_failing()) or touched:
            self._writer.wake()

    @contextlib.asynccontextmanager
    async def _following_pods(self) -> AsyncIterator[None]:
        pods = Informer(self._client, SlimPod, granted_by=NETWORK_POLICY, clock=self._clock)
        namespaces = Informer(self._client, SlimNamespace, granted_by=NETWORK_POLICY, clock=self._clock)
        async with asyncio.TaskGroup() as group:
            tasks = [
                cancellation.start(group, namespaces.run, "follow namespaces"),
                cancellation.start(group, pods.run, "follow pods"),
                cancellation.start(group, self._orphaned.run, "follow pods without an object"),
                cancellation.start(group, self._former.run, "delete flows of former addresses"),
            ]
            try:
                await self._queue.join()  # pods of an earlier time are forgotten
                await namespaces.wait_synced()
                namespaces.subscribe(self._namespace_changed)
                await pods.wait_synced()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(NODE_LIST_TIMEOUT):
                        await self._wait_nodes()
                pods.subscribe(self._pod_changed)
                await self._queue.join()
                log.info("enforcing %d network policies", len(self._table.policies))
                yield
            finally:
                for task in tasks:
                    task.cancel()
                self._queue.add(self._forget_pods, ADDRESSES, after=self._queue.lanes())
