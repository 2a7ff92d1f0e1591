"""RBAC escalation: rejects roles and bindings that grant permissions which their author does not have.

Upstream does this in the storage of the rbac group; here it is a plugin, for the same moment: after all defaults, before
the write. The verbs `escalate` (on the role) and `bind` (on the role bound) are the ways around it.

An update is checked as a whole, whatever it changes: a label may make a ClusterRole part of an aggregated one. Only what
the garbage collector changes is let through (pkg/registry/rbac/helpers.go).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from control.admission.refusal import refuse
from control.auth.authorizers import allowed
from control.auth.rbac import BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, GROUP, ROLES, RBACAuthorizer
from control.auth.rule_coverage import describe, uncovered, work
from control.auth.rule_set import Rule, count_values
from control.auth.user import SYSTEM_MASTERS, Authorizer, AuthzAttributes
from control.event_loop import offload
from control.event_loop.weight import VALUE
from control.interfaces.admission import Attributes, Plugin
from kube.errors import not_found
from kube.json_object import Object, without_empty

_EVERYTHING: list[Rule] = [
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
]
_GC_FIELDS = frozenset({"ownerReferences", "finalizers", "selfLink", "managedFields", "resourceVersion"})
_SUBJECT_FIELDS = ("kind", "apiGroup", "name", "namespace")
_TARGETS = frozenset({ROLES, CLUSTER_ROLES, BINDINGS, CLUSTER_BINDINGS})


class RBACEscalation(Plugin):
    name = "RBACEscalation"
    targets = _TARGETS

    def __init__(self, authorizer: Authorizer, rbac: RBACAuthorizer) -> None:
        self._authorizer, self._rbac = authorizer, rbac

    def handles(self, attributes: Attributes) -> bool:
        outsider = SYSTEM_MASTERS not in attributes.user.groups
        return outsider and attributes.concern(_TARGETS, "CREATE", "UPDATE")

    async def validate(self, attributes: Attributes) -> None:
        obj, old = attributes.obj or {}, attributes.old
        if old is not None and await offload.run(attributes.user.name, _size(obj) + _size(old), _same, obj, old):
            return
        if attributes.resource.target in (ROLES, CLUSTER_ROLES):
            await self._role(attributes, obj, old)
        else:
            await self._binding(attributes, obj)

    async def _role(self, attributes: Attributes, obj: Object, old: Object | None) -> None:
        # The name on the path: a role that is created with POST has none, so a right to escalate by name is not enough.
        name = attributes.name if attributes.asked is None else attributes.asked.name
        if await self._may(attributes, "escalate", attributes.resource.plural, name):
            return
        await self._confirm(attributes, obj.get("rules") or ())
        aggregates = any((each or {}).get("aggregationRule") for each in (obj, old))
        if aggregates and await self._missing(attributes, _EVERYTHING):
            raise refuse(attributes, "must have cluster-admin privileges to use the aggregationRule")

    async def _binding(self, attributes: Attributes, obj: Object) -> None:
        ref = obj.get("roleRef") or {}
        plural = "clusterroles" if ref.get("kind") == "ClusterRole" else "roles"
        if await self._may(attributes, "bind", plural, ref.get("name", "")):
            return
        rules = self._rbac.role_rules(ref, attributes.namespace)
        if rules is None:
            raise not_found(GROUP, plural, ref.get("name", ""))
        await self._confirm(attributes, rules)

    async def _confirm(self, attributes: Attributes, rules: Sequence[Rule]) -> None:
        missing = await self._missing(attributes, rules)
        if missing:
            raise refuse(attributes, self._message(attributes, missing))

    async def _missing(self, attributes: Attributes, rules: Sequence[Rule]) -> list[Rule]:
        granted = self._rbac.compiled_rules_for(attributes.user, attributes.namespace)
        size = work(granted, rules, offload.LARGE)
        return await offload.run(attributes.user.name, size, uncovered, granted, rules)

    def _message(self, attributes: Attributes, missing: list[Rule]) -> str:
        user = attributes.user
        groups = " ".join(json.dumps(g, ensure_ascii=False) for g in user.groups)
        who = f"user {json.dumps(user.name, ensure_ascii=False)} (groups=[{groups}])"
        what = "\n".join(describe(missing))
        return f"{who} is attempting to grant RBAC permissions not currently held:\n{what}"

    async def _may(self, attributes: Attributes, verb: str, plural: str, name: str) -> bool:
        asked = AuthzAttributes(
            user=attributes.user,
            verb=verb,
            group=GROUP,
            version="v1",
            resource=plural,
            namespace=attributes.namespace,
            name=name,
        )
        return await allowed(self._authorizer, asked)


def _size(obj: Object) -> int:
    return VALUE * (count_values(obj.get("rules") or ()) + len(_SUBJECT_FIELDS) * len(obj.get("subjects") or ()))


def _same(obj: Object, old: Object) -> bool:
    return bool(_without_gc_fields(obj) == _without_gc_fields(old))


def _without_gc_fields(obj: Object) -> Any:
    """Return an object without the fields that the garbage collector and the store set, and without empty ones."""
    metadata = {k: v for k, v in obj.get("metadata", {}).items() if k not in _GC_FIELDS}
    return without_empty(obj | {"metadata": metadata})
