"""Rules of RBAC roles, compiled: rules that a verb, an API group or a resource matches are bits of one integer.

A request is matched with a block of 512 rules by a few dictionary lookups, independent of the number and length of their
lists; the index is as large as the rules themselves. A union of rule sets shares their blocks, so it costs a reference for
each: an index, and above all its resourceNames, exists once for each role and not for each user or kind of request.
Compiling is a generator that yields after each piece of the rules.

Rules match as upstream's: "*" for verbs, groups and resources, `*/scale` for that subresource of every resource, no
resourceNames for every name, a path ending in "*" for a prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from control.auth.compilation import PIECE, Pieces, at_once

Rule = dict[str, Any]
BLOCK = 512
"""Rules of a block: bits of the integers that its indexes consist of."""


class Index:
    """The rules of a block by a text in one of their lists; `others` are those of every text that is in no list."""

    __slots__ = ("others", "texts")

    def __init__(self, others: int) -> None:
        self.others = others
        self.texts: dict[str, int] = {}

    def add(self, number: int, texts: Sequence[str]) -> None:
        """Index texts of a list of the rule with this number."""
        new = dict.fromkeys(texts, self.others | 1 << number)
        if self.texts:
            for text in self.texts.keys() & new.keys():
                new[text] |= self.texts[text]
            self.texts |= new
        else:
            self.texts = new

    def get(self, text: str) -> int:
        return self.texts.get(text, self.others)


def _mask(rules: Iterable[bool]) -> int:
    return sum(1 << number for number, given in enumerate(rules) if given)


class Block:
    """Up to BLOCK rules about resources. A set of them is an integer with a bit for each."""

    __slots__ = ("groups", "names", "resources", "verbs")

    def __init__(self, rules: Sequence[Rule]) -> None:
        """Create an empty block for rules, which `fill` indexes."""
        self.verbs, self.groups, self.resources = (
            Index(_mask("*" in (rule.get(part) or ()) for rule in rules))
            for part in ("verbs", "apiGroups", "resources")
        )
        self.names = Index(_mask(not rule.get("resourceNames") for rule in rules))

    def fill(self, rules: Sequence[Rule]) -> Pieces[None]:
        """Index the rules."""
        parts = (("verbs", self.verbs), ("apiGroups", self.groups), ("resources", self.resources))
        indexes, count = (*parts, ("resourceNames", self.names)), 0
        for number, rule in enumerate(rules):
            for part, index in indexes:
                texts = rule.get(part) or ()
                for start in range(0, len(texts), PIECE):
                    piece = texts[start : start + PIECE] if len(texts) > PIECE else texts
                    index.add(number, piece)
                    count += len(piece)
                    if count >= PIECE:
                        count = 0
                        yield

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
        parts = (*((at_once(compiled(rules)),) if rules else ()), *parts)
        self.blocks: tuple[Block, ...] = tuple(chain.from_iterable(part.blocks for part in parts))
        self.paths: tuple[tuple[frozenset[str], Sequence[str]], ...] = tuple(
            chain.from_iterable(part.paths for part in parts)
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


def compiled(rules: Sequence[Rule]) -> Pieces[RuleSet]:
    """Compile rules."""
    about = [rule for rule in rules if rule.get("resources")]
    blocks, paths = list[Block](), list[tuple[frozenset[str], Sequence[str]]]()
    for start in range(0, len(about), BLOCK):
        some = about[start : start + BLOCK]
        blocks.append(Block(some))
        yield from blocks[-1].fill(some)
    for number, rule in enumerate(rules):
        if rule.get("nonResourceURLs"):
            paths.append((frozenset(rule.get("verbs") or ()), rule["nonResourceURLs"]))
        if number % PIECE == PIECE - 1:
            yield
    found = RuleSet()
    found.blocks, found.paths = tuple(blocks), tuple(paths)
    return found


def _forms(resource: str, subresource: str) -> tuple[str, str]:
    """Return the texts that rules may have for a resource besides "*"."""
    return (f"{resource}/{subresource}", f"*/{subresource}") if subresource else (resource, resource)


def path_matches(pattern: str, path: str) -> bool:
    """Return whether a nonResourceURLs entry covers a path: equal, "*", or a prefix before a final "*"."""
    return pattern in ("*", path) or (pattern.endswith("*") and path.startswith(pattern.rstrip("*")))


def count_values(rules: Iterable[Rule]) -> int:
    """Return how many texts some rules contain."""
    return sum(len(texts or ()) for rule in rules for texts in rule.values())
