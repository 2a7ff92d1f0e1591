"""Pods: defaults, initial status, mutable fields, and graceful deletion."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.checks import FieldErrors, each
from control.registry.core.pod import table, update
from control.registry.core.pod.annotations import validate_profiles_agree
from control.registry.core.pod.creation import skew_warnings, write_label_keys, write_profiles
from control.registry.core.pod.defaults import default_pod, default_status
from control.registry.core.pod.qos import qos_class
from control.registry.core.pod.resize import drop_other_changes, validate_resize
from control.registry.core.pod.status import status_warnings, validate_status
from control.registry.core.pod.warnings import name_warnings, pod_warnings
from control.registry.strategy import OBJECT_META, Strategy, keep
from kube.errors import FieldError, forbidden_field
from kube.json_object import Object
from kube.names import dns1123_subdomain


class PodStrategy(Strategy):
    returns_deleted = True
    columns = table.COLUMNS
    default_grace_period = 30
    status_keeps = ("ownerReferences",)

    def default(self, obj: Object) -> None:
        default_pod(obj)
        default_status(obj)

    def prepare_create(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        obj["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
        write_label_keys(obj)
        _gated_condition(obj)
        write_profiles(obj)

    def warnings_as_sent(self, obj: Object) -> list[str]:
        return skew_warnings(obj)

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

    def prepare_subresource(self, subresource: str, obj: Object, old: Object) -> None:
        """Ephemeral containers and resources come through subresources of their own, which change nothing else."""
        if subresource in ("ephemeralcontainers", "resize"):
            for part in OBJECT_META:
                keep(obj.setdefault("metadata", {}), old.get("metadata") or {}, part)
        if subresource == "status":
            self.prepare_status_update(obj, old)
        elif subresource == "ephemeralcontainers":
            added = (obj.get("spec") or {}).get("ephemeralContainers")
            obj["spec"] = {**(old.get("spec") or {}), "ephemeralContainers": added or []}
            keep(obj, old, "status")
        elif subresource == "resize":
            obj["spec"] = drop_other_changes(obj.get("spec") or {}, old.get("spec") or {})
            keep(obj, old, "status")
        else:
            self.prepare_update(obj, old)

    def validate(self, obj: Object) -> list[FieldError]:
        spec, metadata = obj.get("spec") or {}, obj.get("metadata") or {}
        errors = update.validate_whole(obj)
        errors += _claim_names(spec.get("volumes") or [], metadata.get("name") or "")
        if spec.get("ephemeralContainers"):
            errors.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("schedulingGates") and spec.get("nodeName"):
            errors.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        return [*errors, *validate_profiles_agree(metadata.get("annotations") or {}, spec)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return update.validate_update(obj, old)

    def validate_status_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_status(obj, old)

    def validate_subresource(self, subresource: str, obj: Object, old: Object) -> list[FieldError]:
        if subresource == "status":
            return self.validate_status_update(obj, old)
        if subresource == "ephemeralcontainers":
            return update.validate_ephemeral_update(obj, old)
        if subresource == "resize":
            return validate_resize(obj, old)
        if subresource == "binding":
            return update.validate_annotation_update(obj, old)
        return self.validate_update(obj, old)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        if old:
            return []
        metadata = obj.get("metadata") or {}
        found = name_warnings(metadata.get("name") or "", "the Pod's hostname")
        return found + pod_warnings(obj.get("spec") or {}, metadata)

    def status_warnings(self, obj: Object) -> list[str]:
        return status_warnings(obj)

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
        return table.row(obj, now)

    def row_conditions(self, obj: Object) -> list[Object]:
        return table.conditions(obj)

    def deletion_grace(self, obj: Object, requested: int | None) -> int | None:
        """A pod that no kubelet has, or that has ended, goes at once; else what was requested or the pod's own grace."""
        spec, status = obj.get("spec") or {}, obj.get("status") or {}
        own = spec.get("terminationGracePeriodSeconds")
        period: int = requested if requested is not None else self.default_grace_period if own is None else own
        if not spec.get("nodeName") or status.get("phase") in ("Failed", "Succeeded"):
            return 0
        return 1 if period < 0 else period


def _claim_names(volumes: list[Object], name: str) -> FieldErrors:
    """Check the names of the claims that will be made for ephemeral volumes."""
    for index, volume in enumerate(volumes if name else ()):
        if volume.get("ephemeral") is not None and volume.get("name"):
            claim = f"{name}-{volume['name']}"
            problems = [f'PVC name "{claim}": {problem}' for problem in dns1123_subdomain(claim)]
            yield from each(f"spec.volumes[{index}].name", volume["name"], problems)


def _gated_condition(obj: Object) -> None:
    """Set the condition of scheduling gates at creation, so that the scheduler need not."""
    if obj["spec"].get("schedulingGates"):
        obj["status"]["conditions"] = [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }
        ]
