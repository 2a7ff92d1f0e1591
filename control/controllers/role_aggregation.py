"""Cluster-role aggregation: a ClusterRole with an aggregationRule holds the rules of all roles that it selects.

Upstream: pkg/controller/clusterroleaggregation.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from control.controllers.context import Context
from control.controllers.step_counter import StepCounter, selects
from kube.api import rbac_v1
from kube.controller import Controller
from kube.informer import Change
from kube.object_names import name_of
from kube.selectors import from_label_selector


async def aggregated(role: rbac_v1.ClusterRole, roles: Iterable[rbac_v1.ClusterRole]) -> list[rbac_v1.PolicyRule]:
    """Return the rules that an aggregating role should have: by role name, each rule once, its own name left out."""
    if role.aggregation_rule is None:
        return role.rules
    rules: dict[bytes, rbac_v1.PolicyRule] = {}
    counter = StepCounter()
    others = [other for other in sorted(roles, key=name_of) if name_of(other) != name_of(role)]
    for label_selector in role.aggregation_rule.cluster_role_selectors:
        selector = from_label_selector(label_selector)
        for other in others:
            if await selects(selector, other.metadata.labels, counter):
                for rule in other.rules:
                    await counter.count()
                    rules.setdefault(msgspec.json.encode(rule), rule)
    return list(rules.values())


class RoleAggregationController:
    """Follows ClusterRoles."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._roles = context.informers.of(rbac_v1.ClusterRole)
        self.controller = Controller(
            "role aggregation", self.reconcile, workers=2, queue="ClusterRoleAggregator", clock=context.clock
        )
        self._roles.subscribe(self._role_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _role_changed(self, change: Change[rbac_v1.ClusterRole]) -> None:
        """Any role may be part of any aggregating one, which are few."""
        for role in self._roles.list():
            if role.aggregation_rule is not None:
                self.controller.enqueue(role.metadata.name or "")

    async def reconcile(self, key: str) -> None:
        """Write the rules of one aggregating role."""
        role = self._roles.get(key)
        if role is None or role.aggregation_rule is None:
            return
        rules = await aggregated(role, self._roles.list())
        if rules != role.rules:
            await self._client.update(msgspec.structs.replace(role, rules=rules))
