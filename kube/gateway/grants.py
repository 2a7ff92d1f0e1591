"""Permission of references to objects in other namespaces, by ReferenceGrants in the namespace of the object."""

from __future__ import annotations

from kube.gateway.objects import GROUP, ReferenceGrant
from kube.gateway.view import View


def permitted(view: View, kind: str, namespace: str, target_kind: str, target_namespace: str, target: str) -> bool:
    """Return whether an object of the Gateway API may refer to an object of the core group."""
    if namespace == target_namespace:
        return True
    return any(_permits(grant, kind, namespace, target_kind, target) for grant in view.grants(target_namespace))


def _permits(grant: ReferenceGrant, kind: str, namespace: str, target_kind: str, target: str) -> bool:
    spec = grant.spec
    return any(
        each.group == GROUP and each.kind == kind and each.namespace == namespace for each in spec.from_
    ) and any(not each.group and each.kind == target_kind and each.name in ("", target) for each in spec.to)
