"""Admission policies written in CEL, and their bindings."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.admissionregistration.expressions import expressions
from control.registry.admissionregistration.rules import validate_rules
from control.registry.admissionregistration.webhook import default_rules
from control.registry.cells import AGE, NAME, UNSET, Column, created, name_of, selector_text
from control.registry.checks import one_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, required


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

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if not spec.get(self.rules) and not spec.get("auditAnnotations"):
            detail = "validations or auditAnnotations must contain at least one item"
            errors.append(required(f"spec.{self.rules}", detail if self.rules == "validations" else ""))
        match, path = spec.get("matchConstraints"), "spec.matchConstraints"
        if match is None:
            errors.append(required(path))
        else:
            if not match.get("resourceRules"):
                errors.append(required(f"{path}.resourceRules"))
            errors += validate_rules(match.get("resourceRules"), f"{path}.resourceRules")
        errors += one_of(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", needed=False)
        kind = spec.get("paramKind")
        if kind is not None:
            errors += [required(f"spec.paramKind.{key}") for key in ("apiVersion", "kind") if not kind.get(key)]
        return errors + expressions(spec)

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

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if not spec.get("policyName"):
            errors.append(required("spec.policyName"))
        actions = spec.get("validationActions") or []
        if self.resource.kind.startswith("Validating"):
            if not actions:
                errors.append(required("spec.validationActions", "at least one validation action is required"))
            for index, action in enumerate(actions):
                errors += one_of(action, ("Audit", "Deny", "Warn"), f"spec.validationActions[{index}]")
            if {"Deny", "Warn"} <= set(actions):
                detail = (
                    "must not contain both Deny and Warn (repeating the same validation failure information in the API "
                    "response and headers serves no purpose)"
                )
                errors.append(invalid_value("spec.validationActions", actions, detail))
        return errors

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
