"""Comparison of RBAC rules for the escalation check: finds parts of the wanted rules that the granted ones do not cover.

admission/rbac_escalation.py decides when to compare, and refuses. A wanted rule is broken into its single grants (one
verb, group, resource, name or path); each must be covered by one rule that is granted, wildcards included. This is
pkg/registry/rbac/validation's rule, and it also tells the start-up reconciliation which rules a role lacks. A wanted
rule as a whole is looked for first, since most often one rule covers it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from control.auth.rule_set import Block, Index, Rule, RuleSet, path_matches
from kube.field_path import bounded

MOST_STEPS = 500_000
"""Texts that are looked for in a block of granted rules, 50 to 100 ms: a role of 3 KB multiplies out to a million grants."""
MOST_FOUND = 1000
"""Grants that are returned."""
MOST_TEXT = 128 * 1024
"""Characters of the rules in a refusal: a client chooses how long the names in its rules are, and many grants repeat them."""


class _TooManySteps(Exception):
    """MOST_STEPS were taken."""


def uncovered(granted: RuleSet, wanted: Sequence[Rule]) -> list[Rule]:
    """Return the single grants of `wanted` that `granted` does not cover, MOST_FOUND of them.

    Where telling would take more than MOST_STEPS, a rule of `wanted` that is not known to be covered is returned whole.
    """
    found: dict[tuple[tuple[str, str], ...], Rule] = {}
    search = _Search(granted)
    for rule in wanted:
        try:
            if search.covers(rule):
                continue
            for kind in _kinds(rule):
                if search.covers(kind):  # with all its names
                    continue
                for grant in _grants(kind):
                    if not search.covers(grant):
                        found.setdefault(tuple((part, texts[0]) for part, texts in grant.items()), grant)
                    if len(found) >= MOST_FOUND:
                        return [*found.values()]
        except _TooManySteps:
            return [*found.values()] or [rule]
    return [*found.values()]


def work(granted: RuleSet, wanted: Sequence[Rule], most: int) -> int:
    """Return about how many steps it takes to look for each grant, or something from `most` on."""
    rules, found = 1 + len(granted.blocks) + sum(len(paths) for _, paths in granted.paths), 0
    if 2 * rules * len(wanted) >= most:  # a rule has one grant at least
        return most
    for rule in wanted:
        texts = [len(rule.get(part) or ()) for part in ("verbs", "apiGroups", "resources", "resourceNames")]
        found += rules * (
            1 + prod(max(1, number) for number in texts) + len(rule.get("nonResourceURLs") or ()) * texts[0]
        )
        if found >= most:
            break
    return found


class _Search:
    """Searches the granted rules, for at most MOST_STEPS."""

    def __init__(self, granted: RuleSet) -> None:
        self._granted = granted
        self._left = MOST_STEPS

    def covers(self, wanted: Rule) -> bool:
        """Return whether one rule that is granted covers all grants of one that is wanted; raises _TooManySteps."""
        verbs, paths, resources = (wanted.get(part) or () for part in ("verbs", "nonResourceURLs", "resources"))
        self._take(1)
        if not paths:
            return any(self._in_block(block, wanted) for block in self._granted.blocks)
        return not resources and any(self._in_paths(*granted, verbs, paths) for granted in self._granted.paths)

    def _in_block(self, block: Block, wanted: Rule) -> bool:
        found = self._all(block.verbs, wanted.get("verbs") or (), -1)
        found = found and self._all(block.groups, wanted.get("apiGroups") or (), found)
        for resource in (wanted.get("resources") or ()) if found else ():
            subresource = resource.partition("/")[2]
            self._take(1)
            found &= block.resources.get(resource) | block.resources.get(
                f"*/{subresource}" if subresource else resource
            )
            if not found:
                break
        if found & block.names.others:
            return True
        names = wanted.get("resourceNames") or ()
        return bool(found and names and self._all(block.names, names, found))

    def _all(self, index: Index, texts: Sequence[str], found: int) -> int:
        for text in texts:
            self._take(1)
            found &= index.get(text)
            if not found:
                break
        return found

    def _in_paths(
        self, held_verbs: frozenset[str], held_paths: Sequence[str], verbs: Sequence[str], paths: Sequence[str]
    ) -> bool:
        self._take(len(verbs))
        if "*" not in held_verbs and not held_verbs.issuperset(verbs):
            return False
        for path in paths:
            self._take(len(held_paths))
            if not any(path_matches(pattern, path) for pattern in held_paths):
                return False
        return True

    def _take(self, steps: int) -> None:
        self._left -= steps
        if self._left < 0:
            raise _TooManySteps


def compact(rules: Sequence[Rule]) -> list[Rule]:
    """Put single grants that differ only in their verb together, as messages show them."""
    found: dict[tuple[Any, ...], tuple[Rule, dict[str, None]]] = {}
    for number, rule in enumerate(rules):
        key: tuple[Any, ...] = (number,)
        if not rule.get("nonResourceURLs"):
            key = tuple((k, tuple(v)) for k, v in sorted(rule.items()) if k != "verbs")
        found.setdefault(key, (rule, {}))[1].update(dict.fromkeys(rule["verbs"]))
    return [rule | {"verbs": [*verbs]} for rule, verbs in found.values()]


def describe(rules: Sequence[Rule]) -> list[str]:
    """Write rules in the form of upstream's refusals: {APIGroups:[""], Resources:["pods"], Verbs:["get"]}.

    Of many only the first are written, as far as they have MOST_TEXT characters together.
    """
    found, left = set[str](), MOST_TEXT
    for rule in compact(rules):
        text = _describe(rule)
        left -= len(text)
        if left < 0 and found:
            break
        found.add(text[:MOST_TEXT])
    return sorted(found)


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
    return " ".join(f'"{bounded(v)}"' for v in values)


def _kinds(rule: Rule) -> Iterator[Rule]:
    """Yield a rule's single verbs, groups, resources and paths, with all its names."""
    names = {"resourceNames": rule["resourceNames"]} if rule.get("resourceNames") else {}
    for verb in rule.get("verbs") or ():
        for path in rule.get("nonResourceURLs") or ():
            yield {"verbs": [verb], "nonResourceURLs": [path]}
        for group in rule.get("apiGroups") or ():
            for resource in rule.get("resources") or ():
                yield {"verbs": [verb], "apiGroups": [group], "resources": [resource]} | names


def _grants(kind: Rule) -> Iterator[Rule]:
    """Yield what _kinds yields for each name by itself."""
    for name in kind.get("resourceNames") or ():
        yield kind | {"resourceNames": [name]}
    if "resourceNames" not in kind:
        yield kind
