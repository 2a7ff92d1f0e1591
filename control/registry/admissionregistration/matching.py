"""Validates references of an admission policy and its binding: kinds of parameters, parameter references, match constraints.

Upstream: validateParamKind, validateParamRef and validateMatchResources in pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

from control.registry.admissionregistration.rules import validate_rules
from control.registry.checks import Errors, each, label_selector, one_of, repeated
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object


def validate_match(match: Object | None, path: str) -> Errors:
    """Check match constraints or a binding's resources; a binding without any matches like its policy."""
    if match is None:
        return []
    errors = one_of(match.get("matchPolicy"), ("Equivalent", "Exact"), f"{path}.matchPolicy")
    for key in ("namespaceSelector", "objectSelector"):
        errors += label_selector(match.get(key), f"{path}.{key}")
    for key in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(key) or ()):
            errors += _resource_names(rule.get("resourceNames") or [], f"{path}.{key}[{index}].resourceNames")
        errors += validate_rules(match.get(key), f"{path}.{key}")
    return errors


def _resource_names(given: list[str], path: str) -> Errors:
    errors: Errors = []
    again = repeated(given)
    for index, name in enumerate(given):
        errors += each(f"{path}[{index}]", name, names.path_segment(name))
        if index in again:
            errors.append(duplicate(f"{path}[{index}]", name))
    return errors


def validate_param_kind(kind: Object | None, path: str) -> Errors:
    """Check the kind of a policy's parameters."""
    if kind is None:
        return []
    errors: Errors = []
    given, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = given.rpartition("/")
    if not given:
        errors.append(required(f"{path}.apiVersion"))
    elif given.count("/") > 1:
        errors.append(invalid_value(f"{path}.apiVersion", given, f"unexpected GroupVersion string: {given}"))
    else:
        problems = names.dns1123_subdomain(group) if group else []
        if problems:
            errors.append(invalid_value(f"{path}.apiVersion", group, ",".join(problems)))
        if not version:
            errors.append(invalid_value(f"{path}.apiVersion", given, "version must be specified"))
        elif problems := names.dns1035_label(version):
            errors.append(invalid_value(f"{path}.apiVersion", version, ",".join(problems)))
    if not name:
        errors.append(required(f"{path}.kind"))
    elif problems := names.dns1035_label(name.lower()):
        why = "may have mixed case, but should otherwise match: " + ",".join(problems)
        errors.append(invalid_value(f"{path}.kind", name, why))
    return errors


def validate_param_ref(reference: Object | None, path: str) -> Errors:
    """Check a binding's reference to its parameters: a name or a selector."""
    if reference is None:
        return []
    errors: Errors = []
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        errors += each(f"{path}.name", name, names.path_segment(name))
        if selector is not None:
            errors.append(forbidden_field(f"{path}.name", both))
    if selector is not None:
        errors += label_selector(selector, f"{path}.selector")
        if name:
            errors.append(forbidden_field(f"{path}.selector", both))
    if not name and selector is None:
        errors.append(required(path, "one of name or selector must be specified"))
    return errors + one_of(
        reference.get("parameterNotFoundAction"), ("Deny", "Allow"), f"{path}.parameterNotFoundAction"
    )
