"""Checks of security contexts, of a pod and of its containers.

A localhost profile must be named: an empty one once meant none at all, so a pod that requested confinement ran without
(CVE-2023-2431).
"""

from __future__ import annotations

import re

from control.registry.checks import Errors, FieldErrors, no_backsteps, one_of
from control.registry.core.pod.annotations import containers_with_paths
from control.registry.core.pod.operating_system import validate_windows_options
from control.registry.ratcheting import newly_forbidden, newly_unsupported
from control.registry.rows import Rows
from control.registry.rules import between, enum
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

MAX_ID = 2**31 - 1
_NO_HOST_USERS = "when `hostUsers` is false"
_IPC_SYSCTLS = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
LONGEST_PROFILE = 4095
_SYSCTL = re.compile(r"([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?")
_CONTAINER_IDS = Rows(("{runAsUser,runAsGroup}", between(0, MAX_ID)))
_POD_IDS = Rows(("{fsGroup,runAsUser,runAsGroup}", between(0, MAX_ID)), ("supplementalGroups[*]", between(0, MAX_ID)))
_POLICIES = Rows(
    ("fsGroupChangePolicy?", enum("Always", "OnRootMismatch")),
    ("supplementalGroupsPolicy?", enum("Merge", "Strict")),
)


def validate_pod_security(spec: Object, path: str) -> FieldErrors:
    """Check the security context of a pod spec at a path, and the fields of the spec that it depends on."""
    context, whole, path = spec.get("securityContext") or {}, path, f"{path}.securityContext"
    yield from _POD_IDS(context, path)
    if spec.get("hostPID") and spec.get("shareProcessNamespace"):
        detail = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid_value(f"{path}.shareProcessNamespace", True, detail)
    yield from _profiles(context, path)
    yield from validate_windows_options(context.get("windowsOptions"), f"{path}.windowsOptions")
    yield from _sysctls(context.get("sysctls") or [], spec, f"{path}.sysctls")
    yield from _POLICIES(context, path)
    policy = context.get("seLinuxChangePolicy")
    if policy not in (None, "Recursive"):  # MountOption needs the feature gate SELinuxMount
        yield newly_unsupported(f"{path}.seLinuxChangePolicy", policy, ("Recursive",))
    if spec.get("hostUsers") is False:
        for key, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(key):
                yield forbidden_field(f"{whole}.{shown}", _NO_HOST_USERS)
        yield from _devices(spec, whole)


def _devices(spec: Object, path: str) -> Errors:
    """Reject block devices, whose owner cannot be mapped; pods of earlier versions may have them."""
    return [
        newly_forbidden(f"{where}.volumeDevices", _NO_HOST_USERS)
        for container, where in containers_with_paths(spec, path)
        if container.get("volumeDevices")
    ]


def validate_container_security(context: Object | None, path: str, *, host_users: bool = True) -> Errors:
    if not context:
        return []
    errors = _CONTAINER_IDS(context, path)
    if context.get("procMount") is not None:
        errors += one_of(context["procMount"], ("Default", "Unmasked"), f"{path}.procMount")
        if host_users and context["procMount"] == "Unmasked":
            errors.append(invalid_value(f"{path}.procMount", "Unmasked", "`hostUsers` must be false to use `Unmasked`"))
    errors += [
        *_profiles(context, path),
        *validate_windows_options(context.get("windowsOptions"), f"{path}.windowsOptions"),
    ]
    if context.get("allowPrivilegeEscalation") is False:
        if context.get("privileged"):
            detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            errors.append(invalid_value(path, context, detail))
        if "CAP_SYS_ADMIN" in ((context.get("capabilities") or {}).get("add") or ()):
            detail = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN"
            errors.append(invalid_value(path, context, detail))
    return errors


def _profiles(context: Object, path: str) -> FieldErrors:
    for field, word in (("seccompProfile", "seccomp"), ("appArmorProfile", "apparmor")):
        profile = context.get(field)
        if profile is None:
            continue
        where, kind, name = f"{path}.{field}", profile.get("type"), profile.get("localhostProfile")
        if not kind:
            yield required(f"{where}.type", f"type is required when {field} is set")
        else:
            yield from one_of(kind, ("Localhost", "RuntimeDefault", "Unconfined"), f"{where}.type")
        shown = "seccomp type" if word == "seccomp" else "AppArmor type"
        if kind == "Localhost":
            if not (name or "").strip():
                yield required(f"{where}.localhostProfile", f"must be set when {shown} is Localhost")
            elif word == "seccomp":
                if name.startswith("/"):
                    yield invalid_value(f"{where}.localhostProfile", name, "must be a relative path")
                yield from no_backsteps(name, f"{where}.localhostProfile")
            else:
                if name.strip() != name:
                    yield invalid_value(f"{where}.localhostProfile", name, "must not be padded with whitespace")
                if len(name) > LONGEST_PROFILE:
                    detail = f"may not be more than {LONGEST_PROFILE} bytes"
                    yield FieldError(f"{where}.localhostProfile", "Too long", detail)
        elif name is not None:
            value = profile if word == "seccomp" else name
            yield invalid_value(f"{where}.localhostProfile", value, f"can only be set when {shown} is Localhost")


def _sysctls(sysctls: list[Object], spec: Object, path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        where, name = f"{path}[{index}].name", sysctl.get("name") or ""
        if not name:
            yield required(where)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            detail = (
                "must have at most 253 characters and match regex "
                "^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"
            )
            yield invalid_value(where, name, detail)
        elif name in seen:
            yield duplicate(where, name)
        if spec.get("hostNetwork") and name.replace("/", ".").startswith("net."):
            yield invalid_value(where, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and name.replace("/", ".").startswith(_IPC_SYSCTLS):
            yield invalid_value(where, name, "may not be specified when 'hostIPC' is true")
        seen.add(name)
