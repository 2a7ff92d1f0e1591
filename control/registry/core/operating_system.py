"""Checks that depend on the operating system that a pod says it is made for (spec.os)."""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.checks import Errors
from control.registry.strategy import Object
from kube.errors import FieldError, forbidden_field

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


def _contexts(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    yield f"{path}.securityContext", spec.get("securityContext") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}].securityContext", container.get("securityContext") or {}
