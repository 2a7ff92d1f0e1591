"""Finds why a PodDisruptionBudget allows no eviction."""

from __future__ import annotations

from collections.abc import Sequence

from kube import selectors
from kube.api import core_v1, policy_v1
from kube.object_names import name_of, namespace_of
from wherry.why import commands
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.workloads import of_pods
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import template_owner

_SCALED = ("Deployment", "StatefulSet", "ReplicaSet", "ReplicationController")


async def causes(diagnosis: Diagnosis, budget: policy_v1.PodDisruptionBudget) -> Sequence[Cause]:
    """Return why a budget allows no eviction at present."""
    if blockers := finalizers(budget, diagnosis.reader.now):
        return blockers
    status, spec, about = budget.status, budget.spec, reference(budget)
    if spec is None or status is None or status.disruptions_allowed:
        return ()
    selector = str(selectors.from_label_selector(spec.selector)) if spec.selector is not None else ""
    pods = await diagnosis.reader.all(core_v1.Pod, namespace_of(budget), label_selector=selector)
    name, healthy = name_of(budget), status.current_healthy or 0
    if not pods:
        return [Cause(f"the disruption budget {name} selects no pod", commands.edit(about), about)]
    rule = (
        f"minAvailable {spec.min_available}"
        if spec.min_available is not None
        else f"maxUnavailable {spec.max_unavailable}"
    )
    text = (
        f"the disruption budget {name} allows no eviction: {healthy} of {len(pods)} pods are healthy, and "
        f"{status.desired_healthy} have to stay ({rule})"
    )
    if healthy < len(pods) and (found := await of_pods(diagnosis, pods)):
        return [Cause(f"{text}; {found[0].text}", found[0].fix, found[0].about, waits=found[0].waits)]
    change = await template_owner(diagnosis.reader, pods[0])
    if change.kind in _SCALED and status.desired_healthy:
        return [
            Cause(text, commands.kubectl("scale", change, f"--replicas={(status.desired_healthy or 0) + 1}"), about)
        ]
    return [Cause(text, commands.edit(about), about)]
