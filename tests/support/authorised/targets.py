"""The resources that requests are made for, custom ones among them, and where their objects are in the store."""

from __future__ import annotations

from dataclasses import dataclass

from kube.json_object import Object
from kube.resources import RESOURCES, Resource

BOATS, CREW = "boats.example", "crew.example"
RBAC, METRICS = "rbac.authorization.k8s.io", "metrics.k8s.io"


@dataclass(frozen=True)
class Target:
    """One served resource: a built-in one, or a custom one (`built_in` None)."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool
    subresources: tuple[str, ...]
    prefix: str
    built_in: Resource | None = None

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def key(self, namespace: str, name: str) -> str:
        return f"{self.prefix}{namespace}/{name}" if self.namespaced else f"{self.prefix}{name}"

    def path(self, namespace: str = "", *more: str) -> str:
        place = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return "/".join((f"{self.root}{place}/{self.plural}", *more))


def _built_in(r: Resource) -> Target:
    return Target(r.group, r.version, r.plural, r.kind, r.namespaced, r.subresources, r.storage_prefix, r)


def _custom(plural: str, kind: str, group: str, subresources: tuple[str, ...] = ()) -> Target:
    return Target(group, "v1", plural, kind, True, subresources, f"/registry/{group}/{plural}/")


def _name(r: Resource) -> str:
    """Return the name of a row of the table; a second version of a resource has it in its name."""
    first = next(other for other in RESOURCES if other.target == r.target)
    return r.target if r is first else f"{r.target}/{r.version}"


TARGETS: dict[str, Target] = {_name(r): _built_in(r) for r in RESOURCES if "get" in r.verbs}
"""All resources with objects, the served versions of a resource one by one."""
TARGETS |= {
    f"boats.{BOATS}": _custom("boats", "Boat", BOATS, ("status", "scale")),
    f"events.{CREW}": _custom("events", "Event", CREW),
}
BY_NAME = {(t.group, t.plural): t for t in reversed(TARGETS.values())}
_BY_PREFIX = {t.prefix: t for t in reversed(TARGETS.values())}
COMPONENTS = TARGETS["componentstatuses"]
"""The one resource whose objects are not stored."""
STORED = tuple(t for t in TARGETS.values() if _BY_PREFIX[t.prefix] is t and t is not COMPONENTS)
"""One target for each place in the store: events and horizontalpodautoscalers are shown by two."""


def target_of(key: str) -> tuple[Target, str, str] | None:
    """Return the target, namespace and name of a key in the store; None if no request is made for its resource.

    The key may be a folder, which ends in "/": the name is empty then, and the namespace if it is that of all objects.
    """
    parts = key.split("/")
    for length in (3, 4):
        target = _BY_PREFIX.get("/".join(parts[:length]) + "/")
        if target is not None:
            namespace, slash, name = "/".join(parts[length:]).partition("/")
            if not target.namespaced:
                return None if slash else (target, "", namespace)
            return (target, namespace, name) if slash or not namespace else None
    return None


def same_storage(group: str, plural: str, target: Target) -> bool:
    """Return whether a resource shows the objects of a target: events are shown by two groups."""
    found = BY_NAME.get((group, plural))
    return found is not None and found.prefix == target.prefix


def definition(plural: str, kind: str, group: str, subresources: Object) -> Object:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind},
            "versions": [version | ({"subresources": subresources} if subresources else {})],
        },
    }
