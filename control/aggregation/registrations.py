"""The server's own APIServices: one for each group version that it serves.

They contain the order of groups (upstream's priorities), and local ones are always available. Those of built-in groups are
created at the start; those of custom resources are created and deleted with their definitions. The labels are upstream's,
by which tools distinguish them from registered extensions.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from control.registry.apiextensions.stored import Definition
from control.resource_metrics.objects import RESOURCES as METRICS
from kube.json_object import Object
from kube.resources import RESOURCES

API_VERSION = "apiregistration.k8s.io/v1"
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
ON_START, ALWAYS = "onstart", "true"
CUSTOM_GROUP, CUSTOM_VERSION = 1000, 100

# kube-aggregator's priorities of groups; versions are 15 but where there are several.
_GROUPS = {
    "": 18000,
    "apiregistration.k8s.io": 18000,
    "apps": 17800,
    "events.k8s.io": 17750,
    "authentication.k8s.io": 17700,
    "authorization.k8s.io": 17600,
    "autoscaling": 17500,
    "batch": 17400,
    "certificates.k8s.io": 17300,
    "networking.k8s.io": 17200,
    "policy": 17100,
    "rbac.authorization.k8s.io": 17000,
    "storage.k8s.io": 16800,
    "apiextensions.k8s.io": 16700,
    "admissionregistration.k8s.io": 16700,
    "scheduling.k8s.io": 16600,
    "coordination.k8s.io": 16500,
    "node.k8s.io": 16300,
    "discovery.k8s.io": 16200,
    "flowcontrol.apiserver.k8s.io": 16100,
    "resource.k8s.io": 15900,
    "metrics.k8s.io": 100,
}
_VERSIONS = {
    ("", "v1"): 1,
    ("autoscaling", "v2"): 30,
    ("flowcontrol.apiserver.k8s.io", "v1"): 21,
    ("metrics.k8s.io", "v1beta1"): 100,
}
_METRICS_NAMES = frozenset(f"{each.version}.{each.group}" for each in METRICS)


def name_of(group: str, version: str) -> str:
    """Return the name of a group version's APIService: "v1.apps", "v1." for the core group."""
    return f"{version}.{group}"


def places(*, resource_metrics: bool = True) -> dict[tuple[str, str], None]:
    """Return the group versions that the server itself serves."""
    served = (*RESOURCES, *METRICS) if resource_metrics else RESOURCES
    return dict.fromkeys((resource.group, resource.version) for resource in served)


def built_in(*, resource_metrics: bool = True) -> list[Object]:
    """Return the APIServices of the built-in groups. The aggregator's own group has none, as upstream."""
    served = [place for place in places(resource_metrics=resource_metrics) if place[0] != "apiregistration.k8s.io"]
    return [_local(g, v, _GROUPS.get(g, 15000), _VERSIONS.get((g, v), 15), ON_START) for g, v in served]


def is_surplus(obj: Object, kept: Collection[str]) -> bool:
    """Return whether an APIService is one that the server wrote for a group version that it does not serve any more.

    That is a custom one, or that of resource metrics; others may be of a newer server that shares the store.
    """
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    if metadata["name"] in kept:
        return False
    managed = (metadata.get("labels") or {}).get(AUTOMANAGED)
    of_metrics = metadata["name"] in _METRICS_NAMES and not spec.get("service")
    return managed == ALWAYS or (managed == ON_START and of_metrics)


def custom(definitions: Iterable[Definition], own: Collection[tuple[str, str]]) -> list[Object]:
    """Return the APIServices of the group versions that established definitions serve and are not the server's own."""
    found: dict[tuple[str, str], None] = {}
    for definition in definitions:
        if definition.servable and definition.holds("Established"):
            group = definition.spec.group
            for version in definition.spec.versions:
                if version.served and (group, version.name) not in own:
                    found[group, version.name] = None
    return [_local(group, version, CUSTOM_GROUP, CUSTOM_VERSION, ALWAYS) for group, version in found]


def _local(group: str, version: str, group_priority: int, version_priority: int, managed: str) -> Object:
    spec: Object = {"version": version, "groupPriorityMinimum": group_priority, "versionPriority": version_priority}
    if group:
        spec["group"] = group
    metadata = {"name": name_of(group, version), "labels": {AUTOMANAGED: managed}}
    return {"apiVersion": API_VERSION, "kind": "APIService", "metadata": metadata, "spec": spec}
