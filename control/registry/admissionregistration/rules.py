"""Checks of rules that select the requests for a webhook or a policy."""

from __future__ import annotations

from control.registry.checks import Errors
from control.registry.rows import Rows
from control.registry.rules import enum, only_wildcard, require
from kube.errors import invalid_value, required

_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")


def _resources(resources: list[str] | None, path: str) -> Errors:
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


RULE = Rows(
    ("operations", require(), only_wildcard("operations")),
    ("apiGroups", require(), only_wildcard("API groups")),
    ("apiVersions", require(), only_wildcard("API versions")),
    ("operations[*]", enum(*_OPERATIONS)),
    ("apiVersions[*]", require()),
    ("resources", _resources),
    ("scope?", enum("*", "Cluster", "Namespaced")),
)
