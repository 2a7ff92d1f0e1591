"""Nobody gives away what they do not have: which of some rules are not covered by others.

A wanted rule is broken into its single grants (one verb, group, resource, name or path); each must be covered by one rule
that is held, wildcards included. This is pkg/registry/rbac/validation's rule, and it also tells the start-up
reconciliation which rules a role lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from control.auth.rbac import path_matches

Rule = dict[str, Any]


def uncovered(held: Sequence[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    """Return the single grants of `wanted` that `held` does not cover."""
    found: list[Rule] = []
    for rule in wanted:
        if any(_covers(have, rule) for have in held):  # most often one rule covers it as a whole
            continue
        for grant in _grants(rule):
            if grant not in found and not any(_covers(have, grant) for have in held):
                found.append(grant)
    return found


def compact(rules: Sequence[Rule]) -> list[Rule]:
    """Put single grants that differ only in their verb together, as messages show them."""
    found: dict[tuple[Any, ...], Rule] = {}
    for number, rule in enumerate(rules):
        if rule.get("nonResourceURLs"):
            found[(number,)] = dict(rule)
            continue
        key: tuple[Any, ...] = tuple((k, tuple(v)) for k, v in sorted(rule.items()) if k != "verbs")
        if key in found:
            found[key]["verbs"] = found[key]["verbs"] + [v for v in rule["verbs"] if v not in found[key]["verbs"]]
        else:
            found[key] = dict(rule)
    return list(found.values())


def describe(rules: Sequence[Rule]) -> list[str]:
    """Write rules in the form of upstream's refusals: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}."""
    return sorted({_describe(r) for r in compact(rules)})


_SHOWN = (
    ("apiGroups", "APIGroups"),
    ("resources", "Resources"),
    ("nonResourceURLs", "NonResourceURLs"),
    ("resourceNames", "ResourceNames"),
    ("verbs", "Verbs"),
)


def _describe(rule: Rule) -> str:
    parts = [f"{title}:[{_quoted(rule[key])}]" for key, title in _SHOWN if rule.get(key)]
    return "{" + ", ".join(parts) + "}"


def _quoted(values: Sequence[str]) -> str:
    return " ".join(f'"{v}"' for v in values)


def _grants(rule: Rule) -> Iterator[Rule]:
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [path]}
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                grant: Rule = {"verbs": [verb], "apiGroups": [group], "resources": [resource]}
                names = rule.get("resourceNames") or ()
                if not names:
                    yield grant
                for name in names:
                    yield grant | {"resourceNames": [name]}


def _covers(have: Rule, want: Rule) -> bool:
    if not _within(want.get("verbs"), have.get("verbs")):
        return False
    if want.get("nonResourceURLs"):
        paths = have.get("nonResourceURLs") or ()
        return all(any(path_matches(p, path) for p in paths) for path in want["nonResourceURLs"])
    names = have.get("resourceNames") or ()
    return (
        bool(have.get("resources"))
        and _within(want.get("apiGroups"), have.get("apiGroups"))
        and all(_resource_within(r, have["resources"]) for r in want.get("resources") or ())
        and (not names or (bool(want.get("resourceNames")) and set(want["resourceNames"]) <= set(names)))
    )


def _within(want: Sequence[str] | None, have: Sequence[str] | None) -> bool:
    return "*" in (have or ()) or set(want or ()) <= set(have or ())


def _resource_within(resource: str, have: Sequence[str]) -> bool:
    if "*" in have or resource in have:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in have
