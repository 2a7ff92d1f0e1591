"""Checks of pod annotations that the server interprets: mirror pods, deletion costs, seccomp and AppArmor profiles.

Profiles of seccomp and AppArmor were annotations before they were fields; if both are set they must be equal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from control.registry.checks import Errors, FieldErrors
from control.registry.core.pod.volumes import descending_path
from kube.errors import FieldError, forbidden_field, invalid_value
from kube.json_object import Object

MIRROR = "kubernetes.io/config.mirror"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
SECCOMP, SECCOMP_CONTAINER = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
APPARMOR = "container.apparmor.security.beta.kubernetes.io/"
_COST = re.compile("0|-?[1-9][0-9]*")
_KINDS = ("initContainers", "containers", "ephemeralContainers")
_MAX_INT32 = 2**31


def containers_with_paths(spec: Object, path: str) -> Iterator[tuple[Object, str]]:
    """Yield every container of a pod spec and its place."""
    for kind in _KINDS:
        for index, container in enumerate(spec.get(kind) or ()):
            yield container, f"{path}.{kind}[{index}]"


def validate_annotations(annotations: Object, spec: Object, path: str) -> Errors:
    """Check the annotations of a pod or a template; `path` is theirs."""
    errors: Errors = []
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errors.append(invalid_value(f"{path}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(DELETION_COST)
    if cost is not None and not (len(cost) <= 11 and _COST.fullmatch(cost) and -_MAX_INT32 <= int(cost) < _MAX_INT32):
        errors.append(invalid_value(f"{path}[{DELETION_COST}]", cost, "must be a 32bit integer"))
    for key, profile in annotations.items():
        if key == SECCOMP or key.startswith(SECCOMP_CONTAINER):
            errors += _seccomp(profile, f"{path}.{key}")
        elif key.startswith(APPARMOR):
            errors += _apparmor(key, profile, spec, f"{path}[{key}]")
    return errors


def validate_annotation_changes(now: Object, before: Object, path: str = "metadata.annotations") -> Errors:
    """Refuse changes of what the kubelet has acted upon already."""
    errors: Errors = []
    for key, value in before.items():
        if now.get(key) != value:
            if key.startswith(APPARMOR):
                errors.append(forbidden_field(f"{path}[{key}]", "may not remove or update AppArmor annotations"))
            if key == MIRROR:
                errors.append(forbidden_field(f"{path}[{key}]", "may not remove or update mirror pod annotation"))
    for key in now.keys() - before.keys():
        if key.startswith(APPARMOR):
            errors.append(forbidden_field(f"{path}[{key}]", "may not add AppArmor annotations"))
        if key == MIRROR:
            errors.append(forbidden_field(f"{path}[{key}]", "may not add mirror pod annotation"))
    return errors


def validate_profiles_agree(annotations: Object, spec: Object, path: str = "spec") -> FieldErrors:
    """Check that annotations and fields of a new pod name the same profiles."""
    whole = spec.get("securityContext") or {}
    if whole.get("seccompProfile") is not None and SECCOMP in annotations:
        where = f"{path}.securityContext.seccompProfile"
        yield from _agree(annotations[SECCOMP], whole["seccompProfile"], where, "seccomp")
    windows = (spec.get("os") or {}).get("name") == "windows"
    for container, where in containers_with_paths(spec, path):
        context, name = container.get("securityContext") or {}, container.get("name") or ""
        profile, annotation = context.get("seccompProfile"), annotations.get(SECCOMP_CONTAINER + name)
        if profile is not None and annotation is not None:
            yield from _agree(annotation, profile, f"{where}.securityContext.seccompProfile", "seccomp")
        profile, annotation = (
            context.get("appArmorProfile") or whole.get("appArmorProfile"),
            annotations.get(APPARMOR + name),
        )
        if profile is not None and annotation is not None and not windows:
            yield from _agree(annotation, profile, f"{where}.securityContext.appArmorProfile", "apparmor")


def _seccomp(profile: str, path: str) -> Errors:
    if profile in ("runtime/default", "docker/default", "unconfined"):
        return []
    if profile.startswith("localhost/"):
        return descending_path(profile.removeprefix("localhost/"), path)
    return [invalid_value(path, profile, "must be a valid seccomp profile")]


def _apparmor(key: str, profile: str, spec: Object, path: str) -> FieldErrors:
    name = key.removeprefix(APPARMOR)
    if not any(c.get("name") == name for c, _ in containers_with_paths(spec, "")):
        yield invalid_value(path, name, "container not found")
    if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
        yield invalid_value(path, profile, f'invalid AppArmor profile name: "{profile}"')


def _agree(annotation: str, profile: Object, path: str, word: str) -> list[FieldError]:
    kind = profile.get("type")
    runtime = ("runtime/default", "docker/default") if word == "seccomp" else ("runtime/default",)
    types = {"Unconfined": annotation == "unconfined", "RuntimeDefault": annotation in runtime}
    if not types.get(kind or "", kind != "Localhost" or annotation.startswith("localhost/")):
        return [forbidden_field(f"{path}.type", f"{word} type in annotation and field must match")]
    if kind == "Localhost" and annotation.removeprefix("localhost/") != profile.get("localhostProfile"):
        return [forbidden_field(f"{path}.localhostProfile", f"{word} profile in annotation and field must match")]
    return []
