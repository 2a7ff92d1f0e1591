"""Node conditions from heartbeats, and taints from conditions. Pure.

A kubelet sends heartbeats by renewing its Lease or the heartbeat time of its Ready condition. lifecycle.py decides when
they have been missing for too long; the node's conditions become Unknown then. Taints are derived from conditions; they
prevent the scheduling of pods (NoSchedule) or evict them (NoExecute).
Upstream: pkg/controller/nodelifecycle/node_lifecycle_controller.go.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kube import object_conditions
from kube.api import core_v1
from kube.clock import format_time

NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
_TAINT_OF: dict[tuple[str, str], str] = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
}
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
_KUBELET_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
_MANAGED_NO_SCHEDULE = {*_TAINT_OF.values(), UNSCHEDULABLE}
_MANAGED_NO_EXECUTE = {NOT_READY, UNREACHABLE}


def condition(node: core_v1.Node, type_: str) -> core_v1.NodeCondition | None:
    return object_conditions.find(node.status.conditions, type_)


def readiness(node: core_v1.Node) -> str:
    """Return the status of the Ready condition; Unknown if there is none."""
    found = condition(node, "Ready")
    return found.status if found else "Unknown"


def unknown_conditions(node: core_v1.Node, now: datetime) -> list[core_v1.NodeCondition] | None:
    """Return the conditions of a node without heartbeats; None if they are Unknown already."""
    stamp = format_time(now)
    conditions = list(node.status.conditions)
    changed = False
    for type_ in _KUBELET_CONDITIONS:
        old = condition(node, type_)
        if old is None:
            conditions.append(
                core_v1.NodeCondition(
                    type=type_,
                    status="Unknown",
                    reason="NodeStatusNeverUpdated",
                    message="Kubelet never posted node status.",
                    last_heartbeat_time=node.metadata.creation_timestamp,
                    last_transition_time=stamp,
                )
            )
            changed = True
        elif old.status != "Unknown":
            conditions[conditions.index(old)] = msgspec.structs.replace(
                old,
                status="Unknown",
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
                last_transition_time=stamp,
            )
            changed = True
    return conditions if changed else None


def no_schedule_keys(node: core_v1.Node) -> set[str]:
    """Return the keys of the NoSchedule taints for a node's state."""
    keys = {key for c in node.status.conditions if (key := _TAINT_OF.get((c.type, c.status))) is not None}
    if node.spec.unschedulable:
        keys.add(UNSCHEDULABLE)
    return keys


def no_execute_key(node: core_v1.Node) -> str | None:
    """Return the key of the NoExecute taint for a node's state; None for a node that is ready or without a status."""
    found = condition(node, "Ready")
    return _TAINT_OF.get(("Ready", found.status)) if found else None


def desired_taints(node: core_v1.Node, no_execute: str | None, now: datetime) -> list[core_v1.Taint] | None:
    """Return the desired taints of a node, `no_execute` among them; None if the node has them already."""
    no_schedule = no_schedule_keys(node)
    no_execute_keys = {no_execute} if no_execute else set()
    kept: list[core_v1.Taint] = []
    for taint in node.spec.taints:
        if taint.effect == "NoSchedule" and taint.key in _MANAGED_NO_SCHEDULE:
            if taint.key not in no_schedule:
                continue
            no_schedule.discard(taint.key)
        elif taint.effect == "NoExecute" and taint.key in _MANAGED_NO_EXECUTE:
            if taint.key not in no_execute_keys:
                continue
            no_execute_keys.discard(taint.key)
        kept.append(taint)
    stamp = format_time(now)
    added = [core_v1.Taint(key=key, effect="NoSchedule", time_added=stamp) for key in sorted(no_schedule)]
    added += [core_v1.Taint(key=key, effect="NoExecute", time_added=stamp) for key in sorted(no_execute_keys)]
    return kept + added if added or len(kept) != len(node.spec.taints) else None
