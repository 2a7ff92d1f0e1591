"""Warnings about pods and templates that are accepted but will not do what their author may think.

Upstream's pkg/api/pod/warnings.go: deprecated labels and annotations, repeated names, resources that make no sense.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.strategy import Object
from kube.quantity import QuantityError, parse

_OLD_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
}
_OLD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "seccomp.security.alpha.kubernetes.io/pod": 'non-functional in v1.27+; use the "seccompProfile" field instead',
}
_OLD_VOLUMES = {
    "gitRepo": "deprecated in v1.11",
    "glusterfs": "deprecated in v1.25, this feature is non-functional in v1.26+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageOS": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}


def pod_warnings(spec: Object, metadata: Object, path: str = "spec", meta_path: str = "metadata") -> list[str]:
    """Return the warnings for a new or changed pod spec."""
    return [*_labels(spec, path), *_annotations(metadata, meta_path), *_volumes(spec, path), *_containers(spec, path)]


def template_warnings(template: Object | None, old: Object | None, path: str) -> list[str]:
    """Return the warnings for a workload's template, none where it is as it was; `path` is its own."""
    if not template or template == old:
        return []
    return pod_warnings(template.get("spec") or {}, template.get("metadata") or {}, f"{path}.spec", f"{path}.metadata")


def _labels(spec: Object, path: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or ()):
        if key in _OLD_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_OLD_LABELS[key]}"
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        key = constraint.get("topologyKey")
        if key in _OLD_LABELS:
            yield f"{path}.topologySpreadConstraints[{index}].topologyKey: {key} is {_OLD_LABELS[key]}"


def _annotations(metadata: Object, path: str) -> Iterator[str]:
    for key in sorted(metadata.get("annotations") or ()):
        if key in _OLD_ANNOTATIONS:
            yield f"{path}.annotations[{key}]: {_OLD_ANNOTATIONS[key]}"


def _volumes(spec: Object, path: str) -> Iterator[str]:
    for index, volume in enumerate(spec.get("volumes") or ()):
        for kind, said in _OLD_VOLUMES.items():
            if volume.get(kind) is not None:
                yield f"{path}.volumes[{index}].{kind}: {said}"
    seen: set[str] = set()
    for index, secret in enumerate(spec.get("imagePullSecrets") or ()):
        name = secret.get("name") or ""
        if not name:
            yield f'{path}.imagePullSecrets[{index}]: invalid empty name ""'
        elif name in seen:
            yield f'{path}.imagePullSecrets[{index}].name: duplicate name "{name}"'
        seen.add(name)


def _containers(spec: Object, path: str) -> Iterator[str]:
    for kind in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(kind) or ()):
            where = f"{path}.{kind}[{index}]"
            resources = container.get("resources") or {}
            for side in ("limits", "requests"):
                for name, amount in (resources.get(side) or {}).items():
                    yield from _fraction(name, amount, f"{where}.resources.{side}[{name}]")
            yield from _repeated_env(container.get("env") or [], f"{where}.env")
            yield from _repeated_ports(container.get("ports") or [], f"{where}.ports")


def _fraction(name: str, amount: str, path: str) -> Iterator[str]:
    try:
        fractional = name in ("memory", "ephemeral-storage") and parse(amount) % 1 != 0
    except QuantityError:
        return
    if fractional:
        yield f'{path}: fractional byte value "{amount}" is invalid, must be an integer'


def _repeated_env(variables: list[Object], path: str) -> Iterator[str]:
    seen: dict[str, Object] = {}
    for index, variable in enumerate(variables):
        name = variable.get("name") or ""
        before = seen.get(name)
        # A variable that builds on its older self is meant to be there twice.
        if before is not None and f"$({name})" not in (variable.get("value") or ""):
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen[name] = variable


def _repeated_ports(ports: list[Object], path: str) -> Iterator[str]:
    seen: dict[tuple[object, ...], int] = {}
    for index, port in enumerate(ports):
        key = (port.get("containerPort"), port.get("protocol"), port.get("hostPort"), port.get("hostIP"))
        if key in seen and port.get("name") != ports[seen[key]].get("name"):
            yield f"{path}[{index}]: duplicate port definition with {path}[{seen[key]}]"
        seen.setdefault(key, index)
