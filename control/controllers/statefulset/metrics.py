"""Metrics of each StatefulSet, with upstream's names (pkg/controller/statefulset/metrics)."""

from __future__ import annotations

from kube.api import apps_v1
from kube.counters import Gauge

_SET = ("statefulset_namespace", "statefulset_name", "pod_management_policy")
MAX_UNAVAILABLE = Gauge(
    "statefulset_controller_statefulset_max_unavailable", "Pods that may be unavailable during an update.", *_SET
)
UNAVAILABLE = Gauge("statefulset_controller_statefulset_unavailable_replicas", "Pods that are unavailable.", *_SET)


def reconciled(found: apps_v1.StatefulSet, status: apps_v1.StatefulSetStatus, allowed: int) -> None:
    """Show a StatefulSet with its new status; `allowed` of its pods may be unavailable."""
    labels = _set_labels(found)
    replicas = 1 if found.spec.replicas is None else found.spec.replicas
    MAX_UNAVAILABLE.set(*labels, value=allowed)
    UNAVAILABLE.set(*labels, value=max(0, replicas - (status.available_replicas or 0)))


def deleted(found: apps_v1.StatefulSet) -> None:
    """Show a StatefulSet no longer."""
    labels = _set_labels(found)
    MAX_UNAVAILABLE.values.pop(labels, None)
    UNAVAILABLE.values.pop(labels, None)


def _set_labels(found: apps_v1.StatefulSet) -> tuple[str, str, str]:
    policy = found.spec.pod_management_policy or "OrderedReady"
    return found.metadata.namespace or "", found.metadata.name or "", policy
