"""Which strategy a resource has: a table of (group, plural) -> "module:Class", imported when first asked for.

Kinds without an entry take the generic `Strategy`. The API is the one place that names all kinds; reading it here keeps a
server from importing what it never serves.
"""

from __future__ import annotations

import importlib

from control.registry.strategy import Settings, Strategy
from kube.resources import Resource

_STRATEGIES: dict[tuple[str, str], str] = {
    ("", "configmaps"): "core.configmap:ConfigMapStrategy",
    ("", "endpoints"): "core.endpoints:EndpointsStrategy",
    ("", "events"): "events.event:EventStrategy",
    ("", "namespaces"): "core.namespace:NamespaceStrategy",
    ("", "nodes"): "core.node:NodeStrategy",
    ("", "pods"): "core.pod:PodStrategy",
    ("", "secrets"): "core.secret:SecretStrategy",
    ("", "serviceaccounts"): "core.serviceaccount:ServiceAccountStrategy",
    ("", "services"): "core.service:ServiceStrategy",
    ("apps", "deployments"): "apps.deployment:DeploymentStrategy",
    ("apps", "replicasets"): "apps.replicaset:ReplicaSetStrategy",
    ("coordination.k8s.io", "leases"): "coordination.lease:LeaseStrategy",
    ("discovery.k8s.io", "endpointslices"): "discovery.endpointslice:EndpointSliceStrategy",
    ("events.k8s.io", "events"): "events.event:EventStrategy",
    ("rbac.authorization.k8s.io", "clusterrolebindings"): "rbac.rolebinding:RoleBindingStrategy",
    ("rbac.authorization.k8s.io", "clusterroles"): "rbac.role:RoleStrategy",
    ("rbac.authorization.k8s.io", "rolebindings"): "rbac.rolebinding:RoleBindingStrategy",
    ("rbac.authorization.k8s.io", "roles"): "rbac.role:RoleStrategy",
}


def strategy_for(resource: Resource, settings: Settings = Settings()) -> Strategy:  # noqa: B008 - it is frozen
    """Return a new strategy for a built-in resource; a server makes one a resource, as Services' holds what is allocated."""
    target = _STRATEGIES.get((resource.group, resource.plural))
    if target is None:
        return Strategy(resource, settings)
    module, _, name = target.partition(":")
    found = getattr(importlib.import_module(f"control.registry.{module}"), name)(resource, settings)
    assert isinstance(found, Strategy)
    return found
