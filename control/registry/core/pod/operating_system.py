"""Checks that depend on the pod's operating system (spec.os), and of the Windows options of a security context."""

from __future__ import annotations

import re
from collections.abc import Iterator

from control.registry.checks import Errors, FieldErrors, each
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value
from kube.json_object import Object

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
_LONGEST_SPEC, _LONGEST_DOMAIN, _LONGEST_USER = 64 * 1024, 256, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*+")
_NOT_IN_USER = re.compile(r'["/\\:;|=,+*?<>@\[\]]')


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


def validate_host_process(spec: Object, path: str) -> FieldErrors:
    """Check Windows' privileged containers: all of a pod's are such or none, and they have the node's network."""
    (_, whole), *own = _contexts(spec, path)
    pod = _host_process(whole)
    count = 0
    for where, context in own:
        value = _host_process(context)
        if pod is not None and value is not None and pod != value:
            detail = f"pod hostProcess value must be identical if both are specified, was {str(pod).lower()}"
            yield invalid_value(f"{where}.windowsOptions.hostProcess", value, detail)
        count += bool(pod if value is None else value)
    if count and count != len(own):
        detail = "If pod contains any hostProcess containers then all containers must be HostProcess containers"
        yield invalid_value(path, "", detail)
    if count and not spec.get("hostNetwork"):
        detail = "hostNetwork must be true if pod contains any hostProcess containers"
        yield invalid_value(f"{path}.hostNetwork", False, detail)


def _host_process(context: Object) -> bool | None:
    found: bool | None = (context.get("windowsOptions") or {}).get("hostProcess")
    return found


def _contexts(spec: Object, path: str) -> Iterator[tuple[str, Object]]:
    yield f"{path}.securityContext", spec.get("securityContext") or {}
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            yield f"{path}.{kind}[{index}].securityContext", container.get("securityContext") or {}


def validate_windows_options(options: Object | None, path: str) -> Errors:
    if not options:
        return []
    name, spec, user = (options.get(k) for k in ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName"))
    errors: Errors = []
    if name is not None:
        errors += each(f"{path}.gmsaCredentialSpecName", name, names.dns1123_subdomain(name))
    if spec == "":
        errors.append(invalid_value(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec cannot be an empty string"))
    elif spec is not None and len(spec) > _LONGEST_SPEC:
        errors.append(invalid_value(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB"))
    return errors + (each(f"{path}.runAsUserName", user, _user_problems(user)) if user is not None else [])


def _user_problems(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(text):
        return ["runAsUserName cannot contain control characters"]
    if text.count("\\") > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    domain, backslash, user = text.rpartition("\\")
    found = []
    if len(domain) >= _LONGEST_DOMAIN:
        found.append(f"runAsUserName's Domain length must be under {_LONGEST_DOMAIN} characters")
    if backslash and not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
        found.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        found.append("runAsUserName's User cannot be empty")
    elif len(user) > _LONGEST_USER:
        found.append(f"runAsUserName's User length must not be longer than {_LONGEST_USER} characters")
    if user and not user.strip(". "):
        found.append("runAsUserName's User cannot contain only periods or spaces")
    if _NOT_IN_USER.search(user):
        found.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return found
