"""Warnings about pods and templates that are accepted but will not do what their author may think.

Upstream's pkg/api/pod/warnings.go: deprecated labels, annotations and volumes, things named twice, selectors that choose
nothing, fractions of bytes, and duplicate or ambiguous ports: all containers share the pod's network, so a port number is
compared over all of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain, islice

from control.registry.core.claim_spec import claim_warnings
from control.registry.core.deprecated import OLD_LABELS, OLD_VOLUMES, OLD_VOLUMES_SPELLED, term_warnings
from control.registry.core.pod.annotations import APPARMOR, SECCOMP, SECCOMP_CONTAINER, containers_with_paths
from control.registry.core.pod.creation import OLD_APPARMOR, profile_of
from control.registry.core.pod.placement import HARD, SOFT
from control.registry.field_values import field_value
from control.registry.ip_checks import ip_warnings
from kube.json_object import Object
from kube.names import dns1123_label
from kube.quantity import QuantityError, parse, remainder

_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_OLD_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
MOST = 256
"""Warnings for one pod spec, in order: an answer's headers have room for fewer (control/server/warnings.py)."""
MOST_COMPARED = 100
"""Ports of one number that later ones are compared with: more warnings than an answer may have."""
NULL_SELECTOR = "a null labelSelector results in matching no pod"


def pod_warnings(
    spec: Object, metadata: Object, path: str = "spec", meta_path: str = "metadata", *, is_pod: bool = True
) -> list[str]:
    """Return the warnings for a new or changed pod spec."""
    found = chain(
        _labels(spec, path),
        _annotations(spec, metadata, path, meta_path, is_pod=is_pod),
        _volumes(spec, path),
        _repeated(spec, path),
        _amounts(spec.get("overhead"), f"{path}.overhead"),
        _containers(spec, path),
        _ports(spec, path),
        _grace(spec, path),
        _affinity(spec, path),
        ip_warnings(spec, "dnsConfig.nameservers[*]", "hostAliases[*].ip", at=path),
    )
    return list(islice(found, MOST))


def template_warnings(obj: Object, old: Object | None, path: str = "spec.template") -> list[str]:
    """Return the warnings for the pod template at a path of an object, none where it is as it was."""
    template = field_value(obj, path)
    if not template or template == field_value(old, path):
        return []
    spec, metadata = template.get("spec") or {}, template.get("metadata") or {}
    return pod_warnings(spec, metadata, f"{path}.spec", f"{path}.metadata", is_pod=False)


def name_warnings(name: str, used: str) -> list[str]:
    """Warn of a name that is no DNS label and is used as a host name; `used` is its purpose."""
    problems = dns1123_label(name)
    if not problems:
        return []
    shown = " ".join(problems)
    return [
        f"metadata.name: this is used in {used}, which can result in surprising behavior; a DNS label is recommended: "
        f"[{shown}]"
    ]


def pod_name_warnings(obj: Object) -> list[str]:
    """Return the warnings for the name of an object whose pods have names that begin with it."""
    return name_warnings((obj.get("metadata") or {}).get("name") or "", "Pod names and hostnames")


def _labels(spec: Object, path: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or ()):
        if key in OLD_LABELS:
            yield f"{path}.nodeSelector[{key}]: {OLD_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    where = f"{path}.affinity.nodeAffinity"
    for index, term in enumerate((affinity.get(HARD) or {}).get("nodeSelectorTerms") or ()):
        yield from term_warnings(term, f"{where}.{HARD}.nodeSelectorTerms[{index}]")
    for index, preference in enumerate(affinity.get(SOFT) or ()):
        yield from term_warnings(preference.get("preference") or {}, f"{where}.{SOFT}[{index}].preference")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        key, where = constraint.get("topologyKey"), f"{path}.topologySpreadConstraints[{index}]"
        if key in OLD_LABELS:
            yield f"{where}.topologyKey: {key} is {OLD_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{where}.labelSelector: {NULL_SELECTOR}"


def _annotations(spec: Object, metadata: Object, path: str, meta_path: str, *, is_pod: bool) -> Iterator[str]:
    found, where = metadata.get("annotations") or {}, f"{meta_path}.annotations"
    for key, text in _OLD_ANNOTATIONS.items():
        if key in found:
            yield f"{where}[{key}]: {text}"
    whole = spec.get("securityContext") or {}
    if SECCOMP in found and whole.get("seccompProfile") is None:
        yield f"{where}[{SECCOMP}]: {_OLD_SECCOMP}"
    for container, _ in containers_with_paths(spec, path):
        context, name = container.get("securityContext") or {}, container.get("name") or ""
        if SECCOMP_CONTAINER + name in found and context.get("seccompProfile") is None:
            yield f"{where}[{SECCOMP_CONTAINER}{name}]: {_OLD_SECCOMP}"
        annotation = found.get(APPARMOR + name)
        if annotation is None or is_pod or context.get("appArmorProfile") is not None:
            continue
        if whole.get("appArmorProfile") is None or whole["appArmorProfile"] != profile_of(annotation):
            yield f"{where}[{APPARMOR}{name}]: {OLD_APPARMOR}"


def _volumes(spec: Object, path: str) -> Iterator[str]:
    volumes = spec.get("volumes") or []
    for index, volume in enumerate(volumes):
        for kind, text in OLD_VOLUMES.items():
            if volume.get(kind) is not None:
                yield f"{path}.volumes[{index}].{OLD_VOLUMES_SPELLED.get(kind, kind)}: {text}"
        template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
        if template is not None:
            where = f"{path}.volumes[{index}].ephemeral.volumeClaimTemplate.spec"
            yield from claim_warnings(template.get("spec") or {}, where)
    projected = [(i, s) for i, v in enumerate(volumes) for s in (v.get("projected") or {}).get("sources") or ()]
    tokens = {(s["serviceAccountToken"]).get("path") for _, s in projected if s.get("serviceAccountToken") is not None}
    for index, source in projected:
        if not source:
            yield f'volume "{volumes[index].get("name") or ""}" (Projected) has no sources provided'
        for kind, shown in (("configMap", "configMap"), ("secret", "secrets"), ("downwardAPI", "downwardAPI")):
            for number, item in enumerate((source.get(kind) or {}).get("items") or ()):
                if item.get("path") in tokens:
                    where = f"{path}.volumes[{index}].projected.sources.{shown}[{number}]"
                    yield f'{where}: has duplicated path with ServiceAccountToken "{item.get("path")}"'


def _repeated(spec: Object, path: str) -> Iterator[str]:
    """Hosts and secrets that are given twice, and secrets that have no name."""
    for field, key, shown in (("hostAliases", "ip", "ip"), ("imagePullSecrets", "name", "name")):
        seen: set[str] = set()
        for index, item in enumerate(spec.get(field) or ()):
            value = item.get(key) or ""
            if value in seen:
                yield f'{path}.{field}[{index}].{key}: duplicate {shown} "{value}"'
            seen.add(value)
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'


def _containers(spec: Object, path: str) -> Iterator[str]:
    for container, where in containers_with_paths(spec, path):
        resources = container.get("resources") or {}
        for name in ("memory", "ephemeral-storage"):
            for side in ("limits", "requests"):
                found = resources.get(side) or {}
                yield from _amounts({name: found[name]} if name in found else {}, f"{where}.resources.{side}")
        yield from _repeated_env(container.get("env") or [], f"{where}.env")


def _amounts(amounts: Object | None, path: str) -> Iterator[str]:
    for name, amount in (amounts or {}).items():
        try:
            fractional = name in ("memory", "ephemeral-storage") and remainder(parse(amount), 1) != 0
        except QuantityError:
            continue
        if fractional:
            yield f'{path}[{name}]: fractional byte value "{amount}" is invalid, must be an integer'


def _repeated_env(variables: list[Object], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        own = f"$({name})"
        # A variable that builds on its older self is meant to be there twice.
        builds = own in (variable.get("value") or "") and variable.get("value") != own
        if name in seen and (variable.get("valueFrom") is not None or not builds):
            quoted = json.dumps(name, ensure_ascii=False)
            yield f"{path}[{index}]: hides previous definition of {quoted}, which may be dropped when using apply"
        seen.add(name)


def _grace(spec: Object, path: str) -> Iterator[str]:
    if (spec.get("terminationGracePeriodSeconds") or 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )


def _affinity(spec: Object, path: str) -> Iterator[str]:
    for kind in ("podAffinity", "podAntiAffinity"):
        found, where = (spec.get("affinity") or {}).get(kind) or {}, f"{path}.affinity.{kind}"
        for index, term in enumerate(found.get(HARD) or ()):
            if term.get("labelSelector") is None:
                yield f"{where}.{HARD}[{index}].labelSelector: {NULL_SELECTOR}"
        for index, preference in enumerate(found.get(SOFT) or ()):
            if (preference.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{where}.{SOFT}[{index}].podAffinityTerm.labelSelector: {NULL_SELECTOR}"


def _ports(spec: Object, path: str) -> Iterator[str]:
    """Yield what is odd about the ports of a pod spec."""
    known: dict[tuple[object, object], list[tuple[str, Object]]] = {}
    for container, where in containers_with_paths(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            own = f"{where}.ports[{index}]"
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{own}: hostIP set without hostPort: {_go(port)}"
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol")), [])
            for place, other in others:
                how = _clash(port, other)
                if how:
                    yield f"{own}: {how} port definition with {place}"
            if len(others) < MOST_COMPARED:
                others.append((own, port))


def _clash(port: Object, other: Object) -> str:
    (ip, host), (ip_before, host_before) = (((p.get("hostIP") or ""), p.get("hostPort") or 0) for p in (port, other))
    if (ip, host) == (ip_before, host_before):
        return "duplicate"
    if not host or not host_before:
        return "overlapping"
    return "dangerously ambiguous" if host == host_before and bool(ip) != bool(ip_before) else ""


def _go(port: Object) -> str:
    """Print a port as Go's %+v does."""
    parts = [("Name", ""), ("HostPort", 0), ("ContainerPort", 0), ("Protocol", ""), ("HostIP", "")]
    return "{" + " ".join((f"{name}:{port.get(name[0].lower() + name[1:]) or empty}" for name, empty in parts)) + "}"
