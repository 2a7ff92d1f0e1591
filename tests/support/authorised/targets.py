"""The resources that requests are made for, custom ones among them, and where their objects are in the store."""

from __future__ import annotations

from dataclasses import dataclass

from kube.json_object import Object
from kube.resources import RESOURCES, Resource, by_path

BOATS, CREW = "boats.example", "crew.example"


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


_NAMES = """
configmaps secrets pods serviceaccounts services events endpoints namespaces nodes persistentvolumeclaims deployments.apps
leases.coordination.k8s.io endpointslices.discovery.k8s.io roles.rbac.authorization.k8s.io
rolebindings.rbac.authorization.k8s.io clusterroles.rbac.authorization.k8s.io
clusterrolebindings.rbac.authorization.k8s.io certificatesigningrequests.certificates.k8s.io
resourceclaims.resource.k8s.io validatingadmissionpolicies.admissionregistration.k8s.io
validatingadmissionpolicybindings.admissionregistration.k8s.io poddisruptionbudgets.policy
mutatingadmissionpolicies.admissionregistration.k8s.io mutatingadmissionpolicybindings.admissionregistration.k8s.io
""".split()


def _built_in(r: Resource) -> Target:
    return Target(r.group, r.version, r.plural, r.kind, r.namespaced, r.subresources, r.storage_prefix, r)


def _custom(plural: str, kind: str, group: str, subresources: tuple[str, ...] = ()) -> Target:
    return Target(group, "v1", plural, kind, True, subresources, f"/registry/{group}/{plural}/")


_EVENTS = by_path("events.k8s.io", "v1", "events")
assert _EVENTS is not None
TARGETS: dict[str, Target] = {r.target: _built_in(r) for r in RESOURCES if r.target in _NAMES}
TARGETS |= {
    "events.events.k8s.io": _built_in(_EVENTS),
    f"boats.{BOATS}": _custom("boats", "Boat", BOATS, ("status", "scale")),
    f"events.{CREW}": _custom("events", "Event", CREW),
}
BY_NAME = {(t.group, t.plural): t for t in TARGETS.values()}


def target_of(key: str) -> tuple[Target, str, str] | None:
    """Return the target, namespace and name of a key in the store; None if no request is made for its resource."""
    for target in TARGETS.values():
        if key.startswith(target.prefix):
            namespace, slash, name = key.removeprefix(target.prefix).partition("/")
            if bool(slash) == target.namespaced:
                return (target, namespace, name) if slash else (target, "", namespace)
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
