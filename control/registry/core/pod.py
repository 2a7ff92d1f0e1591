"""Pods: defaults, status at birth, what may change afterwards, and how deletion waits for the kubelet."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.core import pod_table
from control.registry.core.pod_defaults import default_pod
from control.registry.core.qos import qos_class
from control.registry.strategy import Object, Strategy, keep


class PodStrategy(Strategy):
    columns = pod_table.COLUMNS
    default_grace_period = 30

    def default(self, obj: Object) -> None:
        default_pod(obj)

    def prepare_create(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        spec.pop("ephemeralContainers", None)
        _gated_condition(obj)

    def prepare_update(self, obj: Object, old: Object) -> None:
        keep(obj, old, "status")
        # Ephemeral containers come only through their subresource.
        if (old.get("spec") or {}).get("ephemeralContainers"):
            obj.setdefault("spec", {})["ephemeralContainers"] = old["spec"]["ephemeralContainers"]
        else:
            (obj.get("spec") or {}).pop("ephemeralContainers", None)

    def prepare_status_update(self, obj: Object, old: Object) -> None:
        super().prepare_status_update(obj, old)
        status = obj.setdefault("status", {})
        if not status.get("qosClass"):
            status["qosClass"] = (old.get("status") or {}).get("qosClass") or qos_class(obj.get("spec") or {})
        # Owners are not a matter of status, and a status update may not delete.
        metadata, before = obj.setdefault("metadata", {}), old.get("metadata") or {}
        for part in ("ownerReferences",):
            if part in before:
                metadata[part] = before[part]
            else:
                metadata.pop(part, None)

    def fields(self, obj: Object) -> dict[str, str]:
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        ips = status.get("podIPs") or ()
        return {
            "spec.nodeName": spec.get("nodeName") or "",
            "spec.restartPolicy": spec.get("restartPolicy") or "",
            "spec.schedulerName": spec.get("schedulerName") or "",
            "spec.serviceAccountName": spec.get("serviceAccountName") or "",
            "spec.hostNetwork": "true" if spec.get("hostNetwork") else "false",
            "status.phase": status.get("phase") or "",
            "status.podIP": ips[0].get("ip", "") if ips else status.get("podIP") or "",
            "status.nominatedNodeName": status.get("nominatedNodeName") or "",
        }

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return pod_table.row(obj, now)

    def row_conditions(self, obj: Object) -> list[Object]:
        return pod_table.conditions(obj)

    def deletion_grace(self, obj: Object, requested: int | None) -> int | None:
        """A pod that no kubelet has, or that has ended, goes at once; else what was asked for or the pod's own grace."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        own = spec.get("terminationGracePeriodSeconds")
        period: int = requested if requested is not None else 30 if own is None else own
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if period < 0 else period


def _gated_condition(obj: Object) -> None:
    """Tell of scheduling gates from the start, so that the scheduler need not."""
    if obj["spec"].get("schedulingGates"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
