"""Checks of rules that select the requests for a webhook or a policy."""

from __future__ import annotations

from control.registry.checks import FieldErrors
from control.registry.rows import Rows
from control.registry.rules import enum, only_wildcard, require
from kube.errors import invalid_value, required

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
