"""Roles and ClusterRoles."""

from __future__ import annotations

from control.registry.checks import label_selector
from control.registry.naming import path_segment
from control.registry.strategy import Strategy
from control.registry.table_cells import CREATED_AT, NAME
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object


def validate_rule(rule: Object, *, namespaced: bool, path: str) -> list[FieldError]:
    errors = [] if rule.get("verbs") else [required(f"{path}.verbs", "verbs must contain at least one value")]
    urls = rule.get("nonResourceURLs")
    if urls:
        where = f"{path}.nonResourceURLs"
        if namespaced:
            errors.append(invalid_value(where, urls, "namespaced rules cannot apply to non-resource URLs"))
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            detail = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(where, urls, detail))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


class RoleStrategy(Strategy):
    columns = (NAME, CREATED_AT)
    allow_create_on_update = True
    has_generation = False
    name_rule = staticmethod(path_segment)

    def validate(self, obj: Object) -> list[FieldError]:
        errors: list[FieldError] = []
        for index, rule in enumerate(obj.get("rules") or ()):
            errors += validate_rule(rule, namespaced=self.resource.namespaced, path=f"rules[{index}]")
        aggregation = obj.get("aggregationRule")
        if aggregation is not None:
            selectors, path = aggregation.get("clusterRoleSelectors") or [], "aggregationRule.clusterRoleSelectors"
            if not selectors:
                errors.append(required(path, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
            for index, selector in enumerate(selectors):
                errors += label_selector(selector, f"{path}[{index}]")
        return errors
