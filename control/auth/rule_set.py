"""Rules of RBAC roles, compiled: rules that a verb, an API group or a resource matches are bits of one integer.

A request is looked for in a block of 512 rules with a few dictionary accesses, however many lists of however many texts the
rules have; the index is as large as the rules themselves. A union of rule sets shares their blocks, so it costs a reference
for each: an index, and above all its resourceNames, exists once for each role and not for each user or kind of request.

Rules match as upstream's: "*" for verbs, groups and resources, `*/scale` for that subresource of every resource, no
resourceNames for every name, a path ending in "*" for a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

Rule = dict[str, Any]
BLOCK = 512
"""Rules of a block: bits of the integers that its indexes consist of."""


class Index:
    """The rules of a block by a text in one of their lists; `others` are those of every text that is in no list."""

    __slots__ = ("others", "texts")

    def __init__(self, lists: Iterable[Sequence[str]], others: int = 0) -> None:
        self.others = others
        self.texts: dict[str, int] = {}
        for number, texts in enumerate(lists):
            new = dict.fromkeys(texts, others | 1 << number)
            if self.texts:
                for text in self.texts.keys() & new.keys():
                    new[text] |= self.texts[text]
                self.texts |= new
            else:
                self.texts = new

    def get(self, text: str) -> int:
        return self.texts.get(text, self.others)


def _with_wildcard(lists: list[Sequence[str]]) -> Index:
    return Index(lists, sum(1 << number for number, texts in enumerate(lists) if "*" in texts))


class Block:
    """Up to BLOCK rules about resources. A set of them is an integer with a bit for each."""

    __slots__ = ("groups", "names", "resources", "verbs")

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.verbs = _with_wildcard([r.get("verbs") or () for r in rules])
        self.groups = _with_wildcard([r.get("apiGroups") or () for r in rules])
        self.resources = _with_wildcard([r["resources"] for r in rules])
        names: list[Sequence[str]] = [r.get("resourceNames") or () for r in rules]
        self.names = Index(names, sum(1 << number for number, given in enumerate(names) if not given))

    def matching(self, verb: str, group: str, resource: str, everywhere: str) -> int:
        """Return the rules about a resource; `everywhere` is `*/scale` for a subresource, else the resource again."""
        verbs, groups, resources = self.verbs, self.groups, self.resources
        found = verbs.texts.get(verb, verbs.others) & groups.texts.get(group, groups.others)
        if not found:
            return 0
        texts, others = resources.texts, resources.others
        return found & (texts.get(resource, others) | texts.get(everywhere, others))


class RuleSet:
    """Some rules, and those of other sets."""

    __slots__ = ("blocks", "paths")

    def __init__(self, rules: Sequence[Rule] = (), parts: Iterable[RuleSet] = ()) -> None:
        parts = tuple(parts)
        about = [rule for rule in rules if rule.get("resources")]
        own = [Block(about[start : start + BLOCK]) for start in range(0, len(about), BLOCK)]
        self.blocks: tuple[Block, ...] = (*own, *chain.from_iterable(part.blocks for part in parts))
        paths = [(frozenset(r.get("verbs") or ()), r["nonResourceURLs"]) for r in rules if r.get("nonResourceURLs")]
        self.paths: tuple[tuple[frozenset[str], Sequence[str]], ...] = (
            *paths,
            *chain.from_iterable(part.paths for part in parts),
        )

    def allows(self, verb: str, group: str, resource: str, subresource: str, name: str) -> bool:
        exact, everywhere = _forms(resource, subresource)
        for block in self.blocks:
            found = block.matching(verb, group, exact, everywhere)
            if found and found & block.names.get(name):
                return True
        return False

    def allows_any(self, verb: str, group: str, resource: str, subresource: str) -> bool | None:
        """Return True if every name is allowed, False if none is, None if that depends on the name."""
        answer: bool | None = False
        exact, everywhere = _forms(resource, subresource)
        for block in self.blocks:
            found = block.matching(verb, group, exact, everywhere)
            if found & block.names.others:
                return True
            if found:
                answer = None
        return answer

    def allows_path(self, verb: str, path: str) -> bool:
        return any(
            (verb in verbs or "*" in verbs) and any(path_matches(p, path) for p in paths) for verbs, paths in self.paths
        )


def _forms(resource: str, subresource: str) -> tuple[str, str]:
    """Return the texts that rules may have for a resource besides "*"."""
    return (f"{resource}/{subresource}", f"*/{subresource}") if subresource else (resource, resource)


def path_matches(pattern: str, path: str) -> bool:
    """Say whether a nonResourceURLs entry covers a path: equal, "*", or a prefix before a final "*"."""
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def count_values(rules: Iterable[Rule]) -> int:
    """Return how many texts some rules contain."""
    return sum(len(texts or ()) for rule in rules for texts in rule.values())
