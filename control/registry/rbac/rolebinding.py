"""RoleBindings and ClusterRoleBindings: a role bound to subjects; roleRef is immutable."""

from __future__ import annotations

from control.registry.checks import each, required_name
from control.registry.defaults import Defaults
from control.registry.naming import path_segment, subdomain
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, reference
from kube.errors import FieldError, invalid_value, not_supported, required
from kube.json_object import Object

GROUP = "rbac.authorization.k8s.io"


def _validate_subject(subject: Object, *, cluster_wide: bool, path: str) -> list[FieldError]:
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


def _subjects(kind: str) -> Field:
    """Print the names of subjects of a kind; service accounts have a namespace, too."""

    def shown(subject: Object) -> str:
        name: str = subject.get("name", "")
        return f"{subject.get('namespace', '')}/{name}" if kind == "ServiceAccount" else name

    return Field("subjects", show=lambda found: ", ".join(shown(s) for s in found or () if s.get("kind") == kind))


class RoleBindingStrategy(Strategy):
    columns = (
        NAME,
        Column("Role", Field("roleRef", show=reference), "Kind and name of the role."),
        AGE,
        Column("Users", _subjects("User"), "Users that have the role.", priority=1),
        Column("Groups", _subjects("Group"), "Groups that have the role.", priority=1),
        Column("ServiceAccounts", _subjects("ServiceAccount"), "Service accounts that have the role.", priority=1),
    )
    allow_create_on_update = True
    has_generation = False
    field_defaults = Defaults(("roleRef.apiGroup", GROUP))
    name_rule = staticmethod(path_segment)

    def default(self, obj: Object) -> None:
        super().default(obj)
        for subject in obj.get("subjects") or ():
            if subject.get("kind") in ("User", "Group") and not subject.get("apiGroup"):
                subject["apiGroup"] = GROUP

    def validate(self, obj: Object) -> list[FieldError]:
        role, errors = obj.get("roleRef") or {}, []
        if role.get("apiGroup") != GROUP:
            errors.append(not_supported("roleRef.apiGroup", role.get("apiGroup") or "", (GROUP,)))
        kinds = ("Role", "ClusterRole") if self.resource.namespaced else ("ClusterRole",)
        if role.get("kind") not in kinds:
            errors.append(not_supported("roleRef.kind", role.get("kind") or "", kinds))
        errors += required_name("roleRef.name", role.get("name"), path_segment)
        for index, subject in enumerate(obj.get("subjects") or ()):
            errors += _validate_subject(subject, cluster_wide=not self.resource.namespaced, path=f"subjects[{index}]")
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = self.validate(obj)
        if obj.get("roleRef") != old.get("roleRef"):
            errors.append(invalid_value("roleRef", obj.get("roleRef"), "cannot change roleRef"))
        return errors
