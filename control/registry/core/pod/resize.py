"""The resize subresource of pods: cpu and memory of the pod and its containers, within one quality of service class.

An update changes nothing but resources and resize policies; everything else in it is dropped. The new spec with the old cpu and
memory must be the old one (KEP-1287, KEP-5419; upstream: podResizeStrategy, ValidatePodResize).
"""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.changes import same
from control.registry.checks import Errors, FieldErrors
from control.registry.core.pod.annotations import MIRROR
from control.registry.core.pod.qos import qos_class
from control.registry.core.pod.update import validate_whole
from kube.errors import FieldError, forbidden_field, invalid_value
from kube.json_object import Object

_RESIZED = ("cpu", "memory")
_KINDS = ("containers", "initContainers")
_MUTABLE = "only cpu and memory resources are mutable"


def drop_other_changes(spec: Object, before: Object) -> Object:
    """Return the old spec with the new resources and resize policies.

    Containers that were added, removed or renamed are left for the validation.
    """
    if any(len(spec.get(kind) or ()) != len(before.get(kind) or ()) for kind in _KINDS):
        return spec
    kept = {k: v for k, v in before.items() if k != "resources"}
    if "resources" in spec:
        kept["resources"] = spec["resources"]
    for kind in _KINDS:
        if pairs := list(zip(spec.get(kind) or (), before.get(kind) or (), strict=True)):
            renamed = any(new.get("name") != old.get("name") for new, old in pairs)
            kept[kind] = [new if renamed else _with_size_of(old, new) for new, old in pairs]
    return kept


def _with_size_of(old: Object, new: Object) -> Object:
    kept = {k: v for k, v in old.items() if k not in ("resources", "resizePolicy")}
    return kept | {k: new[k] for k in ("resources", "resizePolicy") if k in new}


def validate_resize(obj: Object, old: Object) -> Errors:
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    if MIRROR in (old.get("metadata", {}).get("annotations") or {}):
        return [forbidden_field("[]", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden_field("[]", "windows pods cannot be resized")]
    errors = validate_whole(obj)
    if qos_class(spec) != qos_class(before):
        detail = "Pod QOS Class may not change as a result of resizing"
        errors.append(invalid_value("spec", (obj.get("status") or {}).get("qosClass") or "", detail))
    if not _is_supported(old.get("status") or {}):
        errors.append(forbidden_field("spec", "Pod running on node without support for resize"))
    errors += _pod_level(spec.get("resources"), before.get("resources"))
    if (old.get("status") or {}).get("nodeAllocatableResourceClaimStatuses"):
        errors.append(forbidden_field("spec", "pods with node allocatable resource claims cannot be resized"))
    if moved := [error for kind in _KINDS for error in _order(kind, spec, before)]:
        return errors + moved
    for kind in reversed(_KINDS):
        for index, (new, was) in enumerate(zip(spec.get(kind) or (), before.get(kind) or (), strict=True)):
            path = f"spec.{kind}[{index}].resources"
            errors += _removed(new.get("resources") or {}, was.get("resources") or {}, path, "resource")
    errors += [*_containers(spec, before), *_init_containers(spec, before)]
    if errors or same(_masked(spec, before), before):
        return errors
    return [forbidden_field("spec", _MUTABLE)]


def _is_supported(status: Object) -> bool:
    """Return whether the kubelet reports the resources of running containers, as those do that resize."""
    states = (c for c in status.get("containerStatuses") or () if (c.get("state") or {}).get("running") is not None)
    first = next(states, None)
    return first is None or first.get("resources") is not None


def _pod_level(new: Object | None, was: Object | None) -> Errors:
    if was is not None and new is None:
        return [forbidden_field("spec.resources", "pod-level resources cannot be removed")]
    errors = _removed(new or {}, was or {}, "spec.resources", "pod-level resource")
    if not same(_put_back(new or {}, was or {}), was):
        errors.append(forbidden_field("spec", f"{_MUTABLE} at pod-level"))
    return errors


def _order(kind: str, spec: Object, before: Object) -> Iterator[FieldError]:
    now, was = spec.get(kind) or (), before.get(kind) or ()
    if len(now) != len(was):
        yield forbidden_field(f"spec.{kind}", f"{kind} may not be added or removed on resize")
        return
    for index, (one, other) in enumerate(zip(now, was, strict=True)):
        if one.get("name") != other.get("name"):
            yield forbidden_field(f"spec.{kind}[{index}].name", f"{kind} may not be renamed or reordered on resize")


def _removed(new: Object, was: Object, path: str, what: str) -> Errors:
    return [
        forbidden_field(f"{path}.{side}", f"{what} {side} cannot be removed")
        for side in ("requests", "limits")
        if (was.get(side) or {}).keys() - (new.get(side) or {}).keys()
    ]


def _containers(spec: Object, before: Object) -> Errors:
    pairs = zip(spec.get("containers") or (), before.get("containers") or (), strict=True)
    return [forbidden_field("spec", _MUTABLE) for new, was in pairs if not same(_unsized(new, was), was)]


def _init_containers(spec: Object, before: Object) -> FieldErrors:
    pairs = zip(spec.get("initContainers") or (), before.get("initContainers") or (), strict=True)
    for index, (new, was) in enumerate(pairs):
        path = f"spec.initContainers[{index}]"
        if not same(_unsized(new, was), was):
            yield forbidden_field(path, "only cpu and memory resources for init or sidecar containers are mutable")
        if new.get("restartPolicy") == "Always" or same(new, was):
            continue
        for policy in new.get("resizePolicy") or ():
            if policy.get("restartPolicy") == "RestartContainer":
                detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
                yield forbidden_field(path, detail)


def _masked(spec: Object, before: Object) -> Object:
    """Return the new spec with the old cpu and memory."""
    masked = dict(spec)
    for kind in _KINDS:
        pairs = zip(spec.get(kind) or (), before.get(kind) or (), strict=True)
        masked[kind] = [_unsized(new, was) for new, was in pairs]
    if spec.get("resources") is not None:
        masked["resources"] = _put_back(spec["resources"], before.get("resources") or {})
    return masked


def _unsized(container: Object, was: Object) -> Object:
    """Return a container with cpu and memory as they were."""
    return {**container, "resources": _put_back(container.get("resources") or {}, was.get("resources") or {})}


def _put_back(resources: Object, was: Object) -> Object:
    masked = {k: v for k, v in resources.items() if k not in ("limits", "requests")}
    for side in ("limits", "requests"):
        kept = {k: v for k, v in (resources.get(side) or {}).items() if k not in _RESIZED}
        if whole := kept | {k: v for k, v in (was.get(side) or {}).items() if k in _RESIZED}:
            masked[side] = whole
    return masked
