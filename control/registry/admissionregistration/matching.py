"""Validates references of an admission policy and its binding: kinds of parameters, parameter references, match constraints.

Upstream: validateParamKind, validateParamRef and validateMatchResources in pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

from control.registry.admissionregistration.rules import RULE
from control.registry.checks import FieldErrors, each, label_selector, one_of
from control.registry.rows import Rows
from control.registry.rules import form, require_enum, unique_item
from kube import names
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object

_NAMES = Rows(("resourceNames[*]", form(names.path_segment), unique_item))


def _rules(rules: list[Object] | None, path: str) -> FieldErrors:
    for rule in (_NAMES, RULE):
        for index, item in enumerate(rules or ()):
            yield from rule(item, f"{path}[{index}]")


MATCH = Rows(
    ("matchPolicy", require_enum("Equivalent", "Exact")),
    ("{namespaceSelector,objectSelector}", label_selector),
    ("{resourceRules,excludeResourceRules}", _rules),
)
"""Rules of match constraints or of a binding's resources; a binding without any matches like its policy."""


def validate_param_kind(kind: Object, path: str) -> FieldErrors:
    """Check the kind of a policy's parameters."""
    given, name = kind.get("apiVersion") or "", kind.get("kind") or ""
    group, _, version = given.rpartition("/")
    if not given:
        yield required(f"{path}.apiVersion")
    elif given.count("/") > 1:
        yield invalid_value(f"{path}.apiVersion", given, f"unexpected GroupVersion string: {given}")
    else:
        problems = names.dns1123_subdomain(group) if group else []
        if problems:
            yield invalid_value(f"{path}.apiVersion", group, ",".join(problems))
        if not version:
            yield invalid_value(f"{path}.apiVersion", given, "version must be specified")
        elif problems := names.dns1035_label(version):
            yield invalid_value(f"{path}.apiVersion", version, ",".join(problems))
    if not name:
        yield required(f"{path}.kind")
    elif problems := names.dns1035_label(name.lower()):
        why = "may have mixed case, but should otherwise match: " + ",".join(problems)
        yield invalid_value(f"{path}.kind", name, why)


def validate_param_ref(reference: Object, path: str) -> FieldErrors:
    """Check a binding's reference to its parameters: a name or a selector."""
    name, selector = reference.get("name") or "", reference.get("selector")
    both = "name and selector are mutually exclusive"
    if name:
        yield from each(f"{path}.name", name, names.path_segment(name))
        if selector is not None:
            yield forbidden_field(f"{path}.name", both)
    if selector is not None:
        yield from label_selector(selector, f"{path}.selector")
        if name:
            yield forbidden_field(f"{path}.selector", both)
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    yield from one_of(reference.get("parameterNotFoundAction"), ("Deny", "Allow"), f"{path}.parameterNotFoundAction")
