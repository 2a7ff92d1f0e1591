"""Checks that depend on the operating system that a pod says it is made for (spec.os)."""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.checks import Errors
from control.registry.strategy import Object
from kube.errors import FieldError, forbidden_field, invalid_value

_NOT_ON_WINDOWS = ("hostUsers", "hostPID", "hostIPC", "shareProcessNamespace")
_POD_NOT_ON_WINDOWS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "fsGroup",
    "fsGroupChangePolicy",
    "sysctls",
    "runAsUser",
    "runAsGroup",
    "supplementalGroups",
    "supplementalGroupsPolicy",
    "seLinuxChangePolicy",
)
_CONTAINER_NOT_ON_WINDOWS = (
    "appArmorProfile",
    "seLinuxOptions",
    "seccompProfile",
    "capabilities",
    "readOnlyRootFilesystem",
    "privileged",
    "allowPrivilegeEscalation",
    "procMount",
    "runAsUser",
    "runAsGroup",
)


def validate_os(spec: Object, path: str) -> Errors:
    """Refuse what the pod's operating system does not have."""
    if (spec.get("os") or {}).get("name") == "windows":
        return list(_windows(spec, path))
    return list(_linux(spec, path))


def _linux(spec: Object, path: str) -> Iterator[FieldError]:
    for where, context in _contexts(spec, path):
        if context.get("windowsOptions") is not None:
            yield forbidden_field(f"{where}.windowsOptions", "windows options cannot be set for a linux pod")


def _windows(spec: Object, path: str) -> Iterator[FieldError]:
    detail = "cannot be set for a windows pod"
    for key in _NOT_ON_WINDOWS:
        if spec.get(key) is not None:
            yield forbidden_field(f"{path}.{key}", detail)
    for where, context in _contexts(spec, path):
        keys = _POD_NOT_ON_WINDOWS if where == f"{path}.securityContext" else _CONTAINER_NOT_ON_WINDOWS
        for key in keys:
            if context.get(key) is not None:
                yield forbidden_field(f"{where}.{key}", detail)


def validate_host_process(spec: Object, path: str) -> Errors:
    """Check Windows' privileged containers: all of a pod's are such or none, and they have the node's network."""
    (_, whole), *own = _contexts(spec, path)
    pod = _host_process(whole)
    errors: Errors = []
    count = 0
    for where, context in own:
        value = _host_process(context)
        if pod is not None and value is not None and pod != value:
            detail = f"pod hostProcess value must be identical if both are specified, was {str(pod).lower()}"
            errors.append(invalid_value(f"{where}.windowsOptions.hostProcess", value, detail))
        count += bool(pod if value is None else value)
    if count and count != len(own):
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        errors.append(invalid_value(path, "", detail))
    if count and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        errors.append(invalid_value(f"{path}.hostNetwork", False, detail))
    return errors


def _host_process(context: Object) -> bool | None:
    found: bool | None = (context.get("windowsOptions") or {}).get("hostProcess")
    return found


def _contexts(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    yield f"{path}.securityContext", spec.get("securityContext") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}].securityContext", container.get("securityContext") or {}
