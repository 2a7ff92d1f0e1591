"""Rules that select the requests for a webhook or a policy, match constraints, and references to a policy's parameters.

Upstream: validateRuleWithOperations, validateParamKind, validateParamRef and validateMatchResources in
pkg/apis/admissionregistration/validation.
"""

from __future__ import annotations

from control.registry.checks import FieldErrors, each, label_selector, one_of
from control.registry.rows import Rows
from control.registry.rules import enum, form, only_wildcard, require, require_enum, unique_item
from kube import names
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def _resources(resources: list[str] | None, path: str) -> FieldErrors:
    """Check that nothing is named that a wildcard in the same list covers."""
    if not resources:
        yield required(path)
        return
    whole: set[str] = set()
    parts: set[str] = set()
    plain = False
    for index, text in enumerate(resources):
        where = f"{path}[{index}]"
        if not text:
            yield required(where)
            continue
        resource, slash, part = text.partition("/")
        if not slash:
            plain = text != "*"  # upstream judges by the last such resource alone
            continue
        if resource in whole:
            yield invalid_value(where, text, f"if '{resource}/*' is present, must not specify {text}")
        if part in parts:
            yield invalid_value(where, text, f"if '*/{part}' is present, must not specify {text}")
        if part == "*":
            whole.add(resource)
        if resource == "*":
            parts.add(part)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid_value(path, resources, "if '*/*' is present, must not specify other resources")
    if plain and "*" in resources:
        yield invalid_value(path, resources, "if '*' is present, must not specify other resources without subresources")


RULE = Rows(
    ("operations", require(), only_wildcard("operations")),
    ("apiGroups", require(), only_wildcard("API groups")),
    ("apiVersions", require(), only_wildcard("API versions")),
    ("operations[*]", enum(*_OPERATIONS)),
    ("apiVersions[*]", require()),
    ("resources", _resources),
    ("scope?", enum("*", "Cluster", "Namespaced")),
)


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
