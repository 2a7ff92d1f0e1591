"""RoleBindings and ClusterRoleBindings: a role given to subjects; the role cannot be exchanged."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.checks import each
from control.registry.defaults import default_empty
from control.registry.naming import path_segment, subdomain
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, not_supported, required

GROUP = "rbac.authorization.k8s.io"


def _validate_subject(subject: Object, cluster_wide: bool, path: str) -> list[FieldError]:
    name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
    errors = [] if name else [required(f"{path}.name")]
    if kind == "ServiceAccount":
        if name:
            errors += each(f"{path}.name", name, subdomain(name))
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not subject.get("namespace") and cluster_wide:
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return errors


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
        default_empty(obj.get("roleRef"), apiGroup=GROUP)
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group"):
                default_empty(subject, apiGroup=GROUP)

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix)

    def validate(self, obj: Object) -> list[FieldError]:
        role, errors = obj.get("roleRef") or {}, []
        if role.get("apiGroup") != GROUP:
            errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup") or "", (GROUP,)))
        kinds = ("Role", "ClusterRole") if self.resource.namespaced else ("ClusterRole",)
        if role.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", role.get("kind") or "", kinds))
        if not role.get("name"):
            errors.append(required("roleRef.name"))
        else:
            errors += each("roleRef.name", role["name"], path_segment(role["name"]))
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += _validate_subject(subject, not self.resource.namespaced, f"subjects[{index}]")
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj)
        if obj.get("roleRef") != old.get("roleRef"):
            errors.append(invalid_value("roleRef", obj.get("roleRef"), "cannot change roleRef"))
        return errors

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
