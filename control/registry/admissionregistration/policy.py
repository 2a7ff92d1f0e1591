"""Admission policies written in CEL, and their bindings."""

from __future__ import annotations

from control.registry.admissionregistration.expressions import expressions
from control.registry.admissionregistration.matching import MATCH, validate_param_kind, validate_param_ref
from control.registry.checks import FieldErrors, one_of
from control.registry.defaults import Defaults, absent
from control.registry.rows import Rows
from control.registry.rules import optional, present, require, require_enum, require_name, unique_item
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, UNSET, Column, Field, count, selector_text
from kube import names
from kube.errors import FieldError, invalid_value, not_supported, required
from kube.json_object import Object

_MATCH = Defaults(
    ("matchPolicy", "Equivalent"),
    ("{namespaceSelector,objectSelector}", absent({})),
    ("{resourceRules,excludeResourceRules}[*].scope", absent("*")),
)


def _kind(kind: Object | None) -> str:
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


_PARAM_KIND = Column("ParamKind", Field("spec.paramKind", show=_kind))


_POLICY = Rows(
    ("spec.matchConstraints", present()),
    ("spec.matchConstraints?.resourceRules", require()),
    ("spec.matchConstraints?", MATCH),
    ("spec.failurePolicy", optional(require_enum("Fail", "Ignore"))),
    ("spec.paramKind?", validate_param_kind),
)


class AdmissionPolicyStrategy(Strategy):
    allow_unconditional_update = False
    rules: tuple[str, ...] = ("validations", "auditAnnotations")
    columns = (NAME, Column("Validations", count("spec.validations"), type="integer"), _PARAM_KIND, AGE)
    field_defaults = Defaults(("spec", absent({})), ("spec.failurePolicy", "Fail"), ("spec.matchConstraints", _MATCH))

    def validate(self, obj: Object) -> list[FieldError]:
        spec, errors = obj.get("spec") or {}, []
        if not any(spec.get(key) for key in self.rules):
            detail = f"{' or '.join(self.rules)} must contain at least one item"
            errors += [required(f"spec.{key}", detail) for key in self.rules]
        errors += _POLICY.errors(obj)
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


_CHANGEABLE = ("*", "CONNECT", "CREATE", "UPDATE")


def _mutable(match: Object | None, path: str) -> list[FieldError]:
    """Check that rules select only operations whose objects can be changed."""
    return [
        not_supported(f"{path}.resourceRules.operations", operation, _CHANGEABLE)
        for rule in (match or {}).get("resourceRules") or ()
        for operation in rule.get("operations") or ()
        if operation not in _CHANGEABLE
    ]


def _parameter(parameter: Object | None) -> str:
    if not parameter:
        return UNSET
    if parameter.get("selector") is not None:
        return selector_text(parameter["selector"])
    namespace, name = parameter.get("namespace"), parameter.get("name", "")
    return f"{namespace}/{name}" if namespace else name


def _one_report(actions: list[str] | None, path: str) -> FieldErrors:
    if {"Deny", "Warn"} <= set(actions or ()):
        detail = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid_value(path, actions, detail)


_BINDING = Rows(
    ("spec.policyName", require_name(names.dns1123_subdomain)),
    ("spec.paramRef?", validate_param_ref),
    ("spec.matchResources?", MATCH),
)
_VALIDATING = Rows(
    ("spec.validationActions", require("at least one validation action is required")),
    ("spec.validationActions[*]", require_enum("Audit", "Deny", "Warn"), unique_item),
    ("spec.validationActions", _one_report),
)
_MUTATING = Rows(("spec.matchResources", _mutable))


class AdmissionPolicyBindingStrategy(Strategy):
    allow_unconditional_update = False
    columns = (
        NAME,
        Column("PolicyName", Field("spec.policyName")),
        Column("ParamRef", Field("spec.paramRef", show=_parameter)),
        AGE,
    )
    field_defaults = Defaults(("spec.matchResources", _MATCH))

    def validate(self, obj: Object) -> list[FieldError]:
        kind = _VALIDATING if self.resource.kind.startswith("Validating") else _MUTATING
        return _BINDING.errors(obj) + kind.errors(obj)
