"""RoleBindings and ClusterRoleBindings: a role given to subjects; the role cannot be exchanged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.naming import path_segment
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

GROUP = "rbac.authorization.k8s.io"


class RoleBindingStrategy(Strategy):
    columns = (
        NAME,
        Column("Role", description="Kind and name of the role."),
        AGE,
        Column("Users", description="Users that have the role.", priority=1),
        Column("Groups", description="Groups that have the role.", priority=1),
        Column("ServiceAccounts", description="Service accounts that have the role.", priority=1),
    )
    allow_create_on_update = True
    has_generation = False

    def default(self, obj: Object) -> None:
        role = obj.get("roleRef")
        if role is not None and not role.get("apiGroup"):
            role["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or []
        named = {
            kind: ", ".join(s.get("name", "") for s in subjects if s.get("kind") == kind) for kind in ("User", "Group")
        }
        accounts = ", ".join(
            f"{s.get('namespace', '')}/{s.get('name', '')}" for s in subjects if s.get("kind") == "ServiceAccount"
        )
        shown = f"{role.get('kind', '')}/{role.get('name', '')}"
        return [name_of(obj), shown, age(created(obj), now), named["User"], named["Group"], accounts]
