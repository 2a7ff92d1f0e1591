"""Admission policies written in CEL, and their bindings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.admissionregistration.webhook import default_rules
from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of, selector_text
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


def _default_match(match: Object | None) -> None:
    if match is None:
        return
    if not match.get("matchPolicy"):
        match["matchPolicy"] = "Equivalent"
    for key in ("namespaceSelector", "objectSelector"):
        if match.get(key) is None:
            match[key] = {}
    for key in ("resourceRules", "excludeResourceRules"):
        default_rules(match.get(key))


class AdmissionPolicyStrategy(Strategy):
    allow_unconditional_update = False
    rules = "validations"
    columns = (NAME, Column("Validations", "integer"), Column("ParamKind"), AGE)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        if not spec.get("failurePolicy"):
            spec["failurePolicy"] = "Fail"
        _default_match(spec.get("matchConstraints"))

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        kind = spec.get("paramKind")
        shown = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET
        return [name_of(obj), len(spec.get(self.rules) or ()), shown, age(created(obj), now)]


class MutatingAdmissionPolicyStrategy(AdmissionPolicyStrategy):
    rules = "mutations"
    columns = (NAME, Column("Mutations", "integer"), Column("ParamKind"), AGE)

    def default(self, obj: Object) -> None:
        super().default(obj)
        if not obj["spec"].get("reinvocationPolicy"):
            obj["spec"]["reinvocationPolicy"] = "Never"


class AdmissionPolicyBindingStrategy(Strategy):
    allow_unconditional_update = False
    columns = (NAME, Column("PolicyName"), Column("ParamRef"), AGE)

    def default(self, obj: Object) -> None:
        _default_match((obj.get("spec") or {}).get("matchResources"))

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        parameter, shown = spec.get("paramRef"), UNSET
        if parameter:
            if parameter.get("selector") is not None:
                shown = selector_text(parameter["selector"])
            else:
                namespace = parameter.get("namespace")
                shown = f"{namespace}/{parameter.get('name', '')}" if namespace else parameter.get("name", "")
        return [name_of(obj), spec.get("policyName") or "", shown, age(created(obj), now)]
