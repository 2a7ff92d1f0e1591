"""Checks of rules that select the requests for a webhook or a policy."""

from __future__ import annotations

from control.registry.checks import Errors
from kube.errors import invalid_value, not_supported, required
from kube.json_object import Object

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_ALONE = {"operations": "operations", "apiGroups": "API groups", "apiVersions": "API versions"}


def validate_rules(rules: list[Object] | None, path: str) -> Errors:
    errors: Errors = []
    for index, rule in enumerate(rules or ()):
        errors += _rule(rule, f"{path}[{index}]")
    return errors


def _rule(rule: Object, path: str) -> Errors:
    errors: Errors = []
    for key, words in _ALONE.items():
        values = rule.get(key) or []
        if not values:
            errors.append(required(f"{path}.{key}"))
        if "*" in values and len(values) > 1:
            errors.append(invalid_value(f"{path}.{key}", values, f"if '*' is present, must not specify other {words}"))
    for index, operation in enumerate(rule.get("operations") or ()):
        if operation not in _OPERATIONS:
            errors.append(not_supported(f"{path}.operations[{index}]", operation, _OPERATIONS))
    for index, version in enumerate(rule.get("apiVersions") or ()):
        if not version:
            errors.append(required(f"{path}.apiVersions[{index}]"))
    errors += _resources(rule.get("resources") or [], f"{path}.resources")
    if rule.get("scope") not in (None, "*", "Cluster", "Namespaced"):
        errors.append(not_supported(f"{path}.scope", rule["scope"], ("*", "Cluster", "Namespaced")))
    return errors


def _resources(resources: list[str], path: str) -> Errors:
    """Check that nothing is named that a wildcard in the same list covers."""
    if not resources:
        return [required(path)]
    errors: Errors = []
    whole: set[str] = set()
    parts: set[str] = set()
    plain = False
    for index, text in enumerate(resources):
        where = f"{path}[{index}]"
        if not text:
            errors.append(required(where))
            continue
        resource, slash, part = text.partition("/")
        if not slash:
            plain = text != "*"  # upstream judges by the last such resource alone
            continue
        if resource in whole:
            detail = f"if '{resource}/*' is present, must not specify {text}"
            errors.append(invalid_value(where, text, detail))
        if part in parts:
            errors.append(invalid_value(where, text, f"if '*/{part}' is present, must not specify {text}"))
        if part == "*":
            whole.add(resource)
        if resource == "*":
            parts.add(part)
    if len(resources) > 1 and "*/*" in resources:
        detail = "if '*/*' is present, must not specify other resources"
        errors.append(invalid_value(path, resources, detail))
    if plain and "*" in resources:
        detail = "if '*' is present, must not specify other resources without subresources"
        errors.append(invalid_value(path, resources, detail))
    return errors
