"""PodDisruptionBudgets: counts healthy, desired and expected pods, and the number of allowed disruptions.

The eviction API takes disruptions from status.disruptionsAllowed and notes the pod; this controller counts again when pods
change, and gives up on recorded pods that have not gone within two minutes. Upstream: pkg/controller/disruption.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from control.controllers import pods as pod_rules
from control.controllers.autoscaling.target import Targets, UnknownKind
from control.controllers.context import Context
from control.controllers.ownership import controller_of
from control.controllers.rounding import scaled
from control.controllers.selector_index import CompiledSelectorIndex
from control.controllers.step_counter import REQUEST_STEPS, StepCounter, selects
from kube.api import apps_v1, autoscaling_v2, core_v1, meta_v1, policy_v1
from kube.clock import after, format_time, parse_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.indexer import by_namespace
from kube.informer import Change, Informer
from kube.object_names import key_of
from kube.selectors import printed

Budget = policy_v1.PodDisruptionBudget
NOTED_SECONDS = 120.0
"""So long a pod may take from its eviction to its deletion."""


class CountUnknown(Exception):
    """The number of expected pods cannot be determined; the message is the reason."""


ScaleOf = Callable[[core_v1.Pod], tuple[str, int] | None]
"""Return the UID of what a pod belongs to and the number of pods that it wants."""


def expected(budget: Budget, pods: Sequence[core_v1.Pod], scale_of: ScaleOf) -> tuple[int, int]:
    """Return (pods that there should be, pods that must be healthy)."""
    spec = budget.spec
    if spec.max_unavailable is None and not isinstance(spec.min_available, str):
        return len(pods), spec.min_available or 0
    wanted = {}
    for pod in pods:
        found = scale_of(pod)
        if found is not None:
            wanted[found[0]] = found[1]
        elif controller_of(pod) is not None:
            raise _no_controller(pod)
    count = sum(wanted.values())
    if spec.max_unavailable is not None:
        return count, max(0, count - scaled(spec.max_unavailable, count, round_up=True))
    return count, scaled(spec.min_available, count, round_up=True)


def _no_controller(pod: core_v1.Pod) -> CountUnknown:
    return CountUnknown(f'found no controllers for pod "{pod.metadata.name}"')


def noted(budget: Budget, pods: Sequence[core_v1.Pod], now: datetime) -> dict[str, str]:
    """Return the evicted pods that are still to be waited for."""
    left: dict[str, str] = {}
    by_name = {pod.metadata.name: pod for pod in pods}
    for name, since in budget.status.disrupted_pods.items():
        pod = by_name.get(name)
        if pod is None or pod.metadata.deletion_timestamp is not None:
            continue
        if after(parse_time(since), NOTED_SECONDS) > now:
            left[name] = since
    return left


def status_of(
    budget: Budget, pods: Sequence[core_v1.Pod], scale_of: ScaleOf, now: datetime
) -> policy_v1.PodDisruptionBudgetStatus:
    """Return the status that the pods give; raises CountUnknown."""
    disrupted = noted(budget, pods, now)
    healthy = sum(
        1
        for pod in pods
        if pod.metadata.deletion_timestamp is None and pod.metadata.name not in disrupted and pod_rules.is_ready(pod)
    )
    count, desired = expected(budget, pods, scale_of)
    allowed = max(0, healthy - desired) if count > 0 else 0
    return policy_v1.PodDisruptionBudgetStatus(
        conditions=_conditions(budget, "SufficientPods" if allowed > 0 else "InsufficientPods", "", now),
        current_healthy=healthy,
        desired_healthy=desired,
        expected_pods=count,
        disruptions_allowed=allowed,
        disrupted_pods=disrupted,
        observed_generation=budget.metadata.generation,
    )


def failed_safe(budget: Budget, why: str, now: datetime) -> policy_v1.PodDisruptionBudgetStatus:
    """Return the status of a budget that cannot be reckoned: nothing may be evicted."""
    conditions = _conditions(budget, "SyncFailed", why, now)
    return msgspec.structs.replace(budget.status, disruptions_allowed=0, conditions=conditions)


def _conditions(budget: Budget, reason: str, message: str, now: datetime) -> list[meta_v1.Condition]:
    state = "True" if reason == "SufficientPods" else "False"
    old = next((c for c in budget.status.conditions if c.type == "DisruptionAllowed"), None)
    since = old.last_transition_time if old is not None and old.status == state else format_time(now)
    condition = meta_v1.Condition(
        type="DisruptionAllowed",
        status=state,
        reason=reason,
        message=message,
        last_transition_time=since,
        observed_generation=budget.metadata.generation,
    )
    return [c for c in budget.status.conditions if c.type != "DisruptionAllowed"] + [condition]


def unmanaged(budget: Budget, pods: Sequence[core_v1.Pod]) -> str:
    """Return what is to be said of pods without a controller that a budget by shares covers; "" where all is well."""
    by_share = budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)
    if not by_share or all(controller_of(pod) is not None for pod in pods):
        return ""
    return (
        f"Pods selected by this PodDisruptionBudget (selector: {printed(budget.spec.selector)}) were found to be unmanaged. "
        "As a result, the status of the PDB cannot be calculated correctly, which may result in undefined behavior. "
        'To account for these pods please set ".spec.minAvailable" field of the PDB to an integer value.'
    )


def stayed(
    budget: Budget, pods: Sequence[core_v1.Pod], status: policy_v1.PodDisruptionBudgetStatus
) -> list[core_v1.Pod]:
    """Return the pods with a granted disruption that were not deleted within the timeout."""
    late = budget.status.disrupted_pods.keys() - status.disrupted_pods.keys()
    return [pod for pod in pods if pod.metadata.name in late and pod.metadata.deletion_timestamp is None]


class DisruptionController:
    """Watches budgets, pods, and the workloads that determine the expected number of pods."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._recorder = context.recorder("controllermanager")
        self._budgets = context.informers.of(Budget)
        self._pods = context.informers.of(core_v1.Pod)
        self._selectors = CompiledSelectorIndex(self._budgets)
        self._pods.add_index("namespace", by_namespace)
        self._targets = Targets(context.client, context.clock)
        self._deployments = context.informers.of(apps_v1.Deployment)
        self._workloads: dict[str, Informer[Any]] = {
            "ReplicaSet": context.informers.of(apps_v1.ReplicaSet),
            "StatefulSet": context.informers.of(apps_v1.StatefulSet),
            "ReplicationController": context.informers.of(core_v1.ReplicationController),
        }
        self.controller = Controller("disruption", self.reconcile, workers=6, each=2, clock=context.clock)
        self._budgets.subscribe(lambda change: self.controller.enqueue(change.key))
        self._pods.subscribe(self._pod_changed)
        for informer in (self._deployments, *self._workloads.values()):
            informer.subscribe(self._workload_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        namespace, labels = change.new.metadata.namespace or "", change.new.metadata.labels
        self._selectors.each(namespace, labels, self.controller.enqueue)
        if change.old is not None and change.old.metadata.labels != labels:
            self._selectors.each(namespace, change.old.metadata.labels, self.controller.enqueue)

    def _workload_changed(self, change: Change[Any]) -> None:
        """Enqueue the budgets of a workload's pods: another scale changes what they expect."""
        workload = change.new
        template = workload.spec.template
        if template is None or (change.old is not None and change.old.spec.replicas == workload.spec.replicas):
            return
        namespace = workload.metadata.namespace or ""
        self._selectors.each(namespace, template.metadata.labels, self.controller.enqueue)

    async def reconcile(self, key: str) -> float | None:
        """Write the status of one budget; come back when a recorded pod has had its time."""
        budget = self._budgets.get(key)
        if budget is None:
            return None
        selector = await self._selectors.of(budget)
        counter, pods = StepCounter(), list[core_v1.Pod]()
        for pod in self._pods.by_index("namespace", budget.metadata.namespace or ""):
            if await selects(selector, pod.metadata.labels, counter):
                pods.append(pod)
        if not pods:
            self._recorder.event(budget, "Normal", "NoPods", "No matching pods found")
        now = self._clock.now()
        try:
            scales = await self._other_scales(budget, pods)
            status = status_of(budget, pods, lambda pod: scales.get(_owner(pod)) or self._scale_of(pod), now)
            if about := unmanaged(budget, pods):
                self._recorder.event(budget, "Warning", "UnmanagedPods", about)
            for pod in stayed(budget, pods, status):
                text = f"Pod was expected by PDB {key_of(budget)} to be deleted but it wasn't"
                self._recorder.event(pod, "Warning", "NotDeleted", text)
        except CountUnknown as error:
            why = f"Failed to calculate the number of expected pods: {error}"
            self._recorder.event(budget, "Warning", "CalculateExpectedPodCountFailed", why)
            status = failed_safe(budget, str(error), now)
        if status != budget.status:
            await self._client.update_status(msgspec.structs.replace(budget, status=status))
        waits = [(parse_time(t) - now).total_seconds() + NOTED_SECONDS for t in status.disrupted_pods.values()]
        return max(1.0, min(waits)) if waits else None

    async def _other_scales(self, budget: Budget, pods: Sequence[core_v1.Pod]) -> dict[str, tuple[str, int]]:
        """Request the scale of what controls pods and is no built-in workload; returns it by the owner's UID.

        Raises CountUnknown at the first owner without one: pods may name as many owners as there are pods.
        """
        spec = budget.spec
        if spec.max_unavailable is None and not isinstance(spec.min_available, str):
            return {}
        found: dict[str, tuple[str, int]] = {}
        counter = StepCounter()
        for pod in pods:
            owner = controller_of(pod)
            await counter.count()
            if owner is None or owner.kind in self._workloads or owner.uid in found:
                continue
            await counter.count(REQUEST_STEPS)
            reference = autoscaling_v2.CrossVersionObjectReference(
                api_version=owner.api_version, kind=owner.kind, name=owner.name
            )
            try:
                resource = await self._targets.resource(reference)
                scale = await self._targets.scale(resource, pod.metadata.namespace or "", owner.name)
            except UnknownKind as error:
                raise CountUnknown(str(error)) from error
            except StatusError as error:
                if error.not_found:  # it has no scale, or is gone: nothing says how many there should be
                    raise _no_controller(pod) from error
                raise CountUnknown(str(error)) from error
            if scale.metadata.uid not in (None, owner.uid):
                raise _no_controller(pod)
            found[owner.uid] = owner.uid, scale.spec.replicas or 0
        return found

    def _scale_of(self, pod: core_v1.Pod) -> tuple[str, int] | None:
        owner = controller_of(pod)
        informer = self._workloads.get(owner.kind) if owner is not None else None
        if owner is None or informer is None:
            return None
        workload: Any = informer.get(f"{pod.metadata.namespace}/{owner.name}")
        if workload is None or workload.metadata.uid != owner.uid:
            return None
        above = controller_of(workload)
        if above is not None and above.kind == "Deployment":
            deployment = self._deployments.get(f"{pod.metadata.namespace}/{above.name}")
            if deployment is not None and deployment.metadata.uid == above.uid:
                workload = deployment
        replicas = workload.spec.replicas
        return workload.metadata.uid or "", 1 if replicas is None else replicas


def _owner(pod: core_v1.Pod) -> str:
    owner = controller_of(pod)
    return owner.uid if owner is not None else ""
