"""Violations of the Pod Security Standards: the parts of a pod that checks visit, and the words of their details."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import msgspec

from control.auth.references import containers
from kube.json_object import Object


class Violation(msgspec.Struct, frozen=True):
    """The reason why a pod is forbidden, and the detail that names the pod's parts."""

    reason: str
    detail: str


def plural(word: str, count: int) -> str:
    return word if count == 1 else word + "s"


def quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def named(kind: str, names: list[str]) -> str:
    """Return names after their kind: 'container "a"', 'containers "a", "b"'."""
    return f"{plural(kind, len(names))} {quoted(names)}"


def using(kind: str, names: list[str]) -> str:
    """Return named parts with their verb: 'container "a" uses', 'containers "a", "b" use'."""
    return f"{named(kind, names)} {'uses' if len(names) == 1 else 'use'}"


def setters(names: list[str]) -> str:
    """Return the pod (""), the containers, or both: 'pod and container "a"'."""
    inside = [name for name in names if name]
    return " and ".join((["pod"] if "" in names else []) + ([named("container", inside)] if inside else []))


def contexts(pod: Object) -> Iterator[tuple[str, Object]]:
    """Yield the security contexts of the pod ("") and of each container, by container name."""
    yield "", pod["spec"].get("securityContext") or {}
    yield from container_contexts(pod)


def container_contexts(pod: Object) -> Iterator[tuple[str, Object]]:
    for container in containers(pod["spec"]):
        yield container.get("name", ""), container.get("securityContext") or {}


def containers_with(pod: Object, bad: Callable[[Object], bool]) -> list[str]:
    """Return the names of the containers whose security context is bad."""
    return [name for name, context in container_contexts(pod) if bad(context)]


def annotations_of(pod: Object) -> dict[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def forbidden_additions(pod: Object, allowed: frozenset[str]) -> str:
    """Return a detail about the containers that add capabilities beyond the allowed ones, "" for none."""
    bad: list[str] = []
    added: set[str] = set()
    for name, context in container_contexts(pod):
        extra = set((context.get("capabilities") or {}).get("add") or ()) - allowed
        if extra:
            bad.append(name)
            added |= extra
    if not bad:
        return ""
    return f"{named('container', bad)} must not include {quoted(sorted(added))} in securityContext.capabilities.add"


def forbidden_types(pod: Object, profile: str) -> tuple[list[str], list[str]]:
    """Return who sets a profile that is neither the runtime's nor a local one, and the types of these profiles."""
    found = [
        (name, context[profile].get("type") or "")
        for name, context in contexts(pod)
        if context.get(profile) is not None
    ]
    bad = [(name, kind) for name, kind in found if kind not in ("RuntimeDefault", "Localhost")]
    return [name for name, _ in bad], sorted({kind for _, kind in bad})


def forbidden_seccomp(pod: Object) -> Violation | None:
    bad, types = forbidden_types(pod, "seccompProfile")
    if not bad:
        return None
    detail = f"{setters(bad)} must not set securityContext.seccompProfile.type to {quoted(types)}"
    return Violation("seccompProfile", detail)
