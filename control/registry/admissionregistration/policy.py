"""Admission policies written in CEL, and their bindings."""

from __future__ import annotations

from control.registry.admissionregistration.expressions import expressions
from control.registry.admissionregistration.matching import validate_match, validate_param_kind, validate_param_ref
from control.registry.admissionregistration.webhook import default_rules
from control.registry.checks import one_of, repeated, required_name
from control.registry.defaults import default_absent, default_empty
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, UNSET, Column, Field, count, selector_text
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required
from kube.json_object import Object


def _default_match(match: Object | None) -> None:
    default_empty(match, ("matchPolicy", "Equivalent"))
    default_absent(match, ("namespaceSelector", {}), ("objectSelector", {}))
    for key in ("resourceRules", "excludeResourceRules"):
        default_rules((match or {}).get(key))


def _kind(kind: Object | None) -> str:
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


_PARAM_KIND = Column("ParamKind", Field("spec.paramKind", show=_kind))


class AdmissionPolicyStrategy(Strategy):
    allow_unconditional_update = False
    rules: tuple[str, ...] = ("validations", "auditAnnotations")
    columns = (NAME, Column("Validations", count("spec.validations"), type="integer"), _PARAM_KIND, AGE)

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        default_empty(spec, ("failurePolicy", "Fail"))
        _default_match(spec.get("matchConstraints"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if not any(spec.get(key) for key in self.rules):
            detail = f"{' or '.join(self.rules)} must contain at least one item"
            errors += [required(f"spec.{key}", detail) for key in self.rules]
        match, path = spec.get("matchConstraints"), "spec.matchConstraints"
        if match is None:
            errors.append(required(path))
        else:
            if not match.get("resourceRules"):
                errors.append(required(f"{path}.resourceRules"))
            errors += validate_match(match, path)
        errors += one_of(spec.get("failurePolicy"), ("Fail", "Ignore"), "spec.failurePolicy", needed=False)
        errors += validate_param_kind(spec.get("paramKind"), "spec.paramKind")
        return errors + expressions(spec, (obj.get("metadata") or {}).get("name") or "")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Check a change; match conditions that stay are not checked again."""
        errors, spec, before = self.validate(obj), obj.get("spec") or {}, old.get("spec") or {}
        if any(spec.get(key) != before.get(key) for key in ("paramKind", "matchConditions")):
            return errors
        return [error for error in errors if not error.path.startswith("spec.matchConditions")]


class MutatingAdmissionPolicyStrategy(AdmissionPolicyStrategy):
    rules = ("mutations",)
    columns = (NAME, Column("Mutations", count("spec.mutations"), type="integer"), _PARAM_KIND, AGE)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = one_of(spec.get("reinvocationPolicy"), ("IfNeeded", "Never"), "spec.reinvocationPolicy")
        errors += _mutable(spec.get("matchConstraints"), "spec.matchConstraints")
        return errors + super().validate(obj)


def _mutable(match: Object | None, path: str) -> list[FieldError]:
    """Check that rules select only operations whose objects can be changed."""
    return [
        not_supported(f"{path}.resourceRules.operations", operation, ("*", "CONNECT", "CREATE", "UPDATE"))
        for rule in (match or {}).get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in ("*", "CONNECT", "CREATE", "UPDATE")
    ]


def _parameter(parameter: Object | None) -> str:
    if not parameter:
        return UNSET
    if parameter.get("selector") is not None:
        return selector_text(parameter["selector"])
    namespace, name = parameter.get("namespace"), parameter.get("name", "")
    return f"{namespace}/{name}" if namespace else name


class AdmissionPolicyBindingStrategy(Strategy):
    allow_unconditional_update = False
    columns = (
        NAME,
        Column("PolicyName", Field("spec.policyName")),
        Column("ParamRef", Field("spec.paramRef", show=_parameter)),
        AGE,
    )

    def default(self, obj: Object) -> None:
        _default_match((obj.get("spec") or {}).get("matchResources"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        errors += required_name("spec.policyName", spec.get("policyName"), names.dns1123_subdomain)
        errors += validate_param_ref(spec.get("paramRef"), "spec.paramRef")
        errors += validate_match(spec.get("matchResources"), "spec.matchResources")
        actions = spec.get("validationActions") or []
        if self.resource.kind.startswith("Validating"):
            if not actions:
                errors.append(required("spec.validationActions", "at least one validation action is required"))
            again = repeated(actions)
            for index, action in enumerate(actions):
                path = f"spec.validationActions[{index}]"
                errors += one_of(action, ("Audit", "Deny", "Warn"), path)
                if index in again:
                    errors.append(duplicate(path, action))
            if {"Deny", "Warn"} <= set(actions):
                detail = (
                    "must not contain both Deny and Warn (repeating the same validation failure information in the API "
                    "response and headers serves no purpose)"
                )
                errors.append(invalid_value("spec.validationActions", actions, detail))
        else:
            errors += _mutable(spec.get("matchResources"), "spec.matchResources")
        return errors
