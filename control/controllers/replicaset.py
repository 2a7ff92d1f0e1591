"""ReplicaSets, and ReplicationControllers, their older form: keep as many pods as requested.

`plan` decides from the pods that exist; `reconcile` claims them, applies the plan and writes the status. Creations and
deletions under way are recorded as expectations, so that a cache that lags behind does not make pods twice.
Upstream: pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.batch_delay import BatchDelay
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.expectations import Expectations
from control.controllers.ownership import (
    by_controller_or_orphan,
    children_of,
    claim,
    claimable,
    controller_of,
    controller_uid,
)
from control.controllers.pod_control import PodControl, namespace_terminating, pod_from_template, slow_start
from control.controllers.pod_deletion_order import deletion_order, same_node_ranks
from control.controllers.selector_index import CompiledSelectorIndex
from control.controllers.step_counter import StepCounter
from kube.api import apps_v1, core_v1
from kube.clock import format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.object_names import key_of, metadata_of, namespace_of

Owner = apps_v1.ReplicaSet | core_v1.ReplicationController
BURST = 500
"""Most creations or deletions in one reconcile (upstream: BurstReplicas)."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions on pods: the number to create, and the pods to delete."""

    create: int = 0
    delete: tuple[core_v1.Pod, ...] = ()


def plan(
    replicas: int, active: Sequence[core_v1.Pod], related: Sequence[core_v1.Pod], now: datetime, burst: int = BURST
) -> Plan:
    """Compare the active pods with the desired number; `related` are the pods of all ReplicaSets of the same owner."""
    missing = replicas - len(active)
    if missing >= 0:
        return Plan(create=min(missing, burst))
    ranks = same_node_ranks(active, related)
    ordered = deletion_order(active, ranks, now)
    return Plan(delete=tuple(ordered[: min(-missing, burst)]))


def status_of(
    rs: Owner,
    active: Sequence[core_v1.Pod],
    fully_labeled: int,
    terminating: int,
    failure: StatusError | None,
    now: datetime,
) -> apps_v1.ReplicaSetStatus:
    """Return the status that the pods give."""
    min_ready = rs.spec.min_ready_seconds or 0
    known = [_condition(c) for c in rs.status.conditions]
    conditions = [c for c in known if c.type != "ReplicaFailure"]
    if failure is not None:
        reason = "FailedCreate" if len(active) < (rs.spec.replicas or 0) else "FailedDelete"
        old = next((c for c in known if c.type == "ReplicaFailure"), None)
        if old is not None and old.reason == reason:
            conditions.append(old)
        else:
            conditions.append(
                apps_v1.ReplicaSetCondition(
                    type="ReplicaFailure",
                    status="True",
                    reason=reason,
                    message=failure.message,
                    last_transition_time=format_time(now),
                )
            )
    ready = [pod for pod in active if pod_rules.is_ready(pod)]
    available = len(ready) if min_ready <= 0 else sum(1 for pod in ready if pod_rules.is_available(pod, min_ready, now))
    return apps_v1.ReplicaSetStatus(
        replicas=len(active),
        fully_labeled_replicas=fully_labeled or None,
        ready_replicas=len(ready) or None,
        available_replicas=available or None,
        terminating_replicas=terminating,
        observed_generation=rs.metadata.generation,
        conditions=conditions,
    )


async def fully_labeled(rs: Owner, active: Sequence[core_v1.Pod]) -> int:
    """Return how many pods have all labels of the template, of which there may be many."""
    wanted = dict(rs.spec.template.metadata.labels) if rs.spec.template else {}
    counter, number = StepCounter(), 0
    for pod in active:
        await counter.count(1 + (len(wanted) >> 2))
        number += wanted.items() <= pod.metadata.labels.items()
    return number


def _condition(
    found: apps_v1.ReplicaSetCondition | core_v1.ReplicationControllerCondition,
) -> apps_v1.ReplicaSetCondition:
    if isinstance(found, apps_v1.ReplicaSetCondition):
        return found
    return msgspec.convert(msgspec.to_builtins(found), apps_v1.ReplicaSetCondition)


def _with_status(rs: Owner, status: apps_v1.ReplicaSetStatus) -> Owner:
    """Return the object with a new status, in the form of its kind."""
    if isinstance(rs, apps_v1.ReplicaSet):
        return msgspec.structs.replace(rs, status=status)
    shape = msgspec.to_builtins(msgspec.structs.replace(status, terminating_replicas=None))
    return msgspec.structs.replace(rs, status=msgspec.convert(shape, core_v1.ReplicationControllerStatus))


class ReplicaSetController:
    """Follows ReplicaSets (or ReplicationControllers) and pods."""

    def __init__(self, context: Context, kind: type[Any] = apps_v1.ReplicaSet) -> None:
        self._client, self._clock = context.client, context.clock
        self._kind = kind
        name = "replicaset" if kind is apps_v1.ReplicaSet else "replication"
        self._sets: Informer[Any] = context.informers.of(kind)
        self._pods = context.informers.of(core_v1.Pod)
        self._selectors = CompiledSelectorIndex(self._sets)
        self._sets.add_index("claim", by_controller_or_orphan)
        self._pods.add_index("claim", by_controller_or_orphan)
        self._expectations = Expectations(self._clock)
        self._batch_delay = BatchDelay()
        self._control = PodControl(self._client, context.recorder(f"{name}-controller"))
        queue = name if kind is apps_v1.ReplicaSet else "replicationmanager"
        self.controller = Controller(name, self.reconcile, workers=15, each=5, queue=queue, clock=self._clock)
        self._sets.subscribe(self._set_changed)
        self._pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    # -- events -----------------------------------------------------------------------------------------------------
    def _set_changed(self, change: Change[Any]) -> None:
        if change.type == "DELETED":
            self._expectations.forget(change.key)
            self._batch_delay.forget(change.key)
        elif change.old is not None and change.old.metadata.generation == change.new.metadata.generation:
            self.controller.enqueue_after(change.key, self._batch_delay.wait(change.key))
            return
        self.controller.enqueue(change.key)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        pod, old = change.new, change.old
        if old is not None and controller_uid(old) != controller_uid(pod):
            self._enqueue_owner_of(old)
        owner = self._owner_of(pod)
        if owner is not None:
            key = key_of(owner)
            if change.type == "ADDED":
                self._expectations.creation_observed(key)
            if change.type == "DELETED" or pod.metadata.deletion_timestamp is not None:
                self._expectations.deletion_observed(key, pod.metadata.uid or "")
            self.controller.enqueue_after(key, self._batch_delay.wait(key))
        elif controller_of(pod) is None and change.type != "DELETED":
            if old is None or old.metadata.labels != pod.metadata.labels or controller_of(old) is not None:
                self._enqueue_matching(pod)

    def _owner_of(self, pod: core_v1.Pod) -> Owner | None:
        reference = controller_of(pod)
        if reference is None or reference.kind != self._kind.__name__:
            return None
        found: Owner | None = self._sets.get(f"{pod.metadata.namespace}/{reference.name}")
        return found if found is not None and found.metadata.uid == reference.uid else None

    def _enqueue_owner_of(self, pod: core_v1.Pod) -> None:
        if (owner := self._owner_of(pod)) is not None:
            self.controller.enqueue(key_of(owner))

    def _enqueue_matching(self, pod: core_v1.Pod) -> None:
        """An orphan appeared: a ReplicaSet that selects it may adopt it."""
        self._selectors.each(pod.metadata.namespace or "", pod.metadata.labels, self.controller.enqueue)

    # -- reconciling ------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Reconcile the pods and status of one ReplicaSet."""
        rs: Owner | None = self._sets.get(key)
        if rs is None:
            self._expectations.forget(key)
            return None
        settled = self._expectations.satisfied(key)
        selector = await self._selectors.of(rs)
        claimed = await claim(self._client, rs, claimable(self._pods, rs), selector)
        self._batch_delay.record(key, len(claimed))
        active = [pod for pod in claimed if pod_rules.is_active(pod)]
        terminating = sum(1 for pod in claimed if pod_rules.is_terminating(pod))
        failure: StatusError | None = None
        if settled and rs.metadata.deletion_timestamp is None:
            failure = await self._apply(key, rs, plan(rs.spec.replicas or 0, active, self._related(rs), self._now()))
        status = status_of(rs, active, await fully_labeled(rs, active), terminating, failure, self._now())
        await self._write_status(rs, _with_status(rs, status))
        if failure is not None:
            raise failure
        if (status.ready_replicas or 0) > (status.available_replicas or 0):
            return pod_rules.next_availability(active, rs.spec.min_ready_seconds or 0, self._now())
        return None

    def _now(self) -> datetime:
        return self._clock.now()

    def _related(self, rs: Owner) -> list[core_v1.Pod]:
        owner = controller_uid(rs)
        family = self._sets.by_index("claim", f"{namespace_of(rs)}/{owner}") if owner else [rs]
        return [pod for member in family for pod in children_of(self._pods, member)]

    async def _apply(self, key: str, rs: Owner, todo: Plan) -> StatusError | None:
        if todo.create:
            return await self._create(key, rs, todo.create)
        if todo.delete:
            return await self._delete(key, rs, todo.delete)
        return None

    async def _create(self, key: str, rs: Owner, count: int) -> StatusError | None:
        pod = pod_from_template(rs.spec.template or core_v1.PodTemplateSpec(), rs)

        async def one(_: int) -> None:
            try:
                await self._control.create(pod, rs)
            except StatusError as error:
                # A refused pod will never be seen; so counts one whose namespace is going away, which is no failure.
                self._expectations.creation_observed(key)
                if not namespace_terminating(error):
                    raise

        with self._expectations.requesting(key, count):
            tried, failure = await slow_start(count, one)
        self._expectations.creation_observed(key, count - tried)
        return failure

    async def _delete(self, key: str, rs: Owner, doomed: Sequence[core_v1.Pod]) -> StatusError | None:
        async def one(pod: core_v1.Pod) -> None:
            try:
                await self._control.delete(pod, rs)
            except StatusError as error:
                self._expectations.deletion_observed(key, pod.metadata.uid or "")
                if not error.not_found:
                    raise

        with self._expectations.requesting(key, deletions=[pod.metadata.uid or "" for pod in doomed]):
            return await for_each(doomed, one)

    async def _write_status(self, rs: Owner, wanted: Owner) -> None:
        if wanted.status == rs.status:
            return
        try:
            await self._client.update_status(wanted)
        except StatusError as error:
            if not error.conflict:
                raise
            fresh = await self._client.get(self._kind, rs.metadata.name or "", rs.metadata.namespace or "")
            if metadata_of(fresh).uid == rs.metadata.uid:
                await self._client.update_status(msgspec.structs.replace(fresh, status=wanted.status))
