"""Validates the resize subresource of pods: cpu and memory of containers, within one quality of service class.

The new spec with the old cpu and memory must be the old one (KEP-1287, ValidatePodResize).
"""

from __future__ import annotations

import copy

from control.registry.changes import same
from control.registry.checks import Errors
from control.registry.core.pod_annotations import MIRROR
from control.registry.core.pod_update import validate_whole
from control.registry.core.qos import qos_class
from control.registry.strategy import Object
from kube.errors import forbidden_field, invalid_value

_RESIZED = ("cpu", "memory")


def validate_resize(obj: Object, old: Object) -> Errors:
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    if MIRROR in (old.get("metadata", {}).get("annotations") or {}):
        return [forbidden_field("[]", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden_field("[]", "windows pods cannot be resized")]
    for kind in ("containers", "initContainers"):
        if len(spec.get(kind) or ()) != len(before.get(kind) or ()):
            return [forbidden_field("spec", "only cpu and memory resources are mutable")]
    errors = validate_whole(obj)
    if qos_class(spec) != qos_class(before):
        detail = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid_value("spec", (obj.get("status") or {}).get("qosClass") or "", detail))
    masked = copy.deepcopy(spec)
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(masked.get(kind) or ()):
            was = before[kind][index]
            sidecar = kind == "initContainers" and was.get("restartPolicy") == "Always"
            if kind == "initContainers" and not sidecar:
                if not same(container, was):
                    detail = "resources for non-sidecar init containers are immutable"
                    errors.append(forbidden_field("spec", detail))
                continue
            errors += _removed(container, was, f"spec.{kind}[{index}].resources")
            _put_back(container, was)
            if not same(container, was):
                which = "for sidecar containers " if sidecar else ""
                errors.append(forbidden_field("spec", f"only cpu and memory resources {which}are mutable"))
    if errors:
        return errors
    if not same(masked, before):
        return [forbidden_field("spec", "only cpu and memory resources are mutable")]
    return []


def _removed(container: Object, was: Object, path: str) -> Errors:
    now, before = container.get("resources") or {}, was.get("resources") or {}
    return [
        forbidden_field(f"{path}.{side}", f"resource {side} cannot be removed")
        for side in ("requests", "limits")
        if (before.get(side) or {}).keys() - (now.get(side) or {}).keys()
    ]


def _put_back(container: Object, was: Object) -> None:
    """Make cpu and memory what they were."""
    resources, before = dict(container.get("resources") or {}), was.get("resources") or {}
    for side in ("limits", "requests"):
        kept = {k: v for k, v in (resources.get(side) or {}).items() if k not in _RESIZED}
        held = {k: v for k, v in (before.get(side) or {}).items() if k in _RESIZED}
        resources[side] = {**kept, **held}
    container["resources"] = resources
