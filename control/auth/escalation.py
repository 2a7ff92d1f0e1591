"""Nobody gives away what they do not have: which of some rules are not covered by others.

A wanted rule is broken into its single grants (one verb, group, resource, name or path); each must be covered by one rule
that is held, wildcards included. This is pkg/registry/rbac/validation's rule, and it also tells the start-up
reconciliation which rules a role lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from control.auth.rbac import path_matches

Rule = dict[str, Any]


MOST_CHECKS = 100_000
"""Comparisons of a grant with a rule that is held: a role of 3 KB multiplies out to a million grants."""
MOST_FOUND = 1000
"""Grants that are returned."""


def uncovered(held: Sequence[Rule], wanted: Sequence[Rule]) -> list[Rule]:
    """Return the single grants of `wanted` that `held` does not cover, MOST_FOUND of them.

    Where telling would take more than MOST_CHECKS, a rule of `wanted` that is not known to be covered is returned whole.
    """
    have = [_Sets.of(rule) for rule in held]
    found: dict[_Sets, Rule] = {}
    left = MOST_CHECKS
    for rule in wanted:
        checked, covered = _look(have, _Sets.of(rule))
        left -= checked
        if covered:  # most often one rule covers it as a whole
            continue
        for grant in _grants(rule):
            if left <= 0 or len(found) >= MOST_FOUND:
                return [*found.values()] or [rule]
            sets = _Sets.of(grant)
            checked, covered = _look(have, sets)
            left -= checked
            if not covered:
                found.setdefault(sets, grant)
    return [*found.values()]


def _look(held: Sequence[_Sets], wanted: _Sets) -> tuple[int, bool]:
    """Say how many rules were looked at, at least one, and whether one covers what is wanted."""
    for number, rule in enumerate(held, 1):
        if rule.covers(wanted):
            return number, True
    return max(1, len(held)), False


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


@dataclass(frozen=True, slots=True)
class _Sets:
    """A rule's lists as sets."""

    verbs: frozenset[str]
    groups: frozenset[str]
    resources: frozenset[str]
    names: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(cls, rule: Rule) -> _Sets:
        lists = ("verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs")
        return cls(*(frozenset(rule.get(name) or ()) for name in lists))

    def covers(self, want: _Sets) -> bool:
        if not _within(want.verbs, self.verbs):
            return False
        if want.paths:
            return all(any(path_matches(p, path) for p in self.paths) for path in want.paths)
        return (
            bool(self.resources)
            and _within(want.groups, self.groups)
            and all(_resource_within(r, self.resources) for r in want.resources)
            and (not self.names or (bool(want.names) and want.names <= self.names))
        )


def _within(want: frozenset[str], have: frozenset[str]) -> bool:
    return "*" in have or want <= have


def _resource_within(resource: str, have: frozenset[str]) -> bool:
    if "*" in have or resource in have:
        return True
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in have
