"""The pod that a StatefulSet waits for, as text for the journal. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from control.controllers import pods as pod_rules
from control.controllers.statefulset.identity import first_ordinal, ordinal_of, revision_of
from control.controllers.statefulset.plan import StatefulPlan, is_rolling
from kube.api import apps_v1, core_v1
from kube.object_names import name_of


def waiting(
    sts: apps_v1.StatefulSet, pods: Sequence[core_v1.Pod], todo: StatefulPlan, update: str, now: datetime
) -> str:
    """Return the pod that the next step waits for and why; "" if there is none. `update` is the revision to update to."""
    if todo.create or todo.delete or sts.metadata.deletion_timestamp is not None:
        return ""
    size = 1 if sts.spec.replicas is None else sts.spec.replicas
    old = [pod for pod in pods if revision_of(pod) != update] if is_rolling(sts) else []
    if len(pods) == size and not old:
        return ""
    step = (
        "the next pod is created"
        if len(pods) < size
        else "a pod is deleted"
        if len(pods) > size
        else "the update goes on"
    )
    first = first_ordinal(sts)
    for pod in sorted(pods, key=lambda pod: ordinal_of(sts, pod) or first):
        why = _why_not(pod, sts.spec.min_ready_seconds or 0, now)
        if why:
            return f"waits for pod {name_of(pod)}, which {why}, before {step}"
    return ""


def _why_not(pod: core_v1.Pod, min_ready: int, now: datetime) -> str:
    if pod.metadata.deletion_timestamp is not None:
        return "is being deleted"
    if pod.status.phase != "Running":
        return f"is {pod.status.phase or 'Pending'}"
    if not pod_rules.is_ready(pod):
        return "is not Ready"
    return (
        "" if pod_rules.is_available(pod, min_ready, now) else f"is not Ready for {min_ready} s yet (minReadySeconds)"
    )
