"""The conditions of the routes of one hostname, indexed so that a request finds the one that applies.

A request looks up its path among the exact ones, then its own prefixes of the lengths that occur, the longest first. What has
the same path is in groups with the same names of conditions (method, headers, parameters), in which the request's own values
are the key. So thousands of rules that differ in values take one lookup. Precedence is that of the Gateway API: exact path,
length of the prefix, method, number of headers, number of parameters, then the oldest route.

The authors of routes decide what a lookup costs, so everything in it is counted (`RoutedRequest.count_steps`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from kube.gateway.model import Match, Route
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import written_path
from netproxy.gateway.rule import CompiledRule

Order = tuple[str, str, int, int]
"""Creation of the route, its namespace and name, and the numbers of the rule and of the match in it."""
_CHARACTERS_PER_CONDITION = 32
"""Characters of a match that are normalized or hashed in about the time that a condition takes otherwise."""
_PER_STEP = 8
"""Conditions of a combination that take about as long as a step."""
_LENGTHS_PER_STEP = 32
"""Lengths of prefixes for which a request's path is examined in about the time of a step."""
_CHARACTERS_PER_STEP = 1024
"""Characters of a prefix that are copied and hashed in about the time of a step."""


class Found(NamedTuple):
    """A rule that a request has matched, and the prefix of its path by which it did."""

    rule: CompiledRule
    prefix: str


class Entry(NamedTuple):
    """A rule as it is found, and its order among others with the same conditions."""

    order: Order
    found: Found


class Condition(NamedTuple):
    """A match of a rule with its path in normal form, which costs by its length: tables of any number of hostnames share it."""

    match: Match
    entry: Entry

    @property
    def cost(self) -> int:
        """Return how many conditions without long texts take as long."""
        pairs = (*self.match.headers, *self.match.query)
        characters = len(self.match.path.value) + sum(len(name) + len(value) for name, value in pairs)
        return 1 + characters // _CHARACTERS_PER_CONDITION


def conditions(route: Route) -> Generator[int, None, list[Condition]]:
    """Return the conditions of a route, the generator's value; yield the cost of each after it."""
    found: list[Condition] = []
    name = f"{route.namespace}/{route.name}"
    for number, rule in enumerate(route.rules):
        compiled = CompiledRule(route, rule)
        for index, match in enumerate(rule.matches or (Match(),)):
            path = written_path(match.path.value)
            prefix = path if match.path.kind == "Exact" else path.rstrip("/")
            found.append(Condition(match, Entry((route.created, name, number, index), Found(compiled, prefix))))
            yield found[-1].cost
    return found


@dataclass(slots=True)
class _Group:
    """Matches with conditions on the same names."""

    method: bool
    headers: tuple[str, ...]
    query: tuple[str, ...]
    entries: dict[tuple[str | None, ...], Entry] = field(default_factory=dict)

    def add(self, key: tuple[str, ...], entry: Entry) -> None:
        before = self.entries.get(key)
        if before is None or entry.order < before.order:
            self.entries[key] = entry

    @property
    def steps(self) -> int:
        return 1 + (len(self.headers) + len(self.query)) // _PER_STEP

    def find(self, request: RoutedRequest) -> Entry | None:
        if not self.headers and not self.query:
            return self.entries.get((request.method if self.method else "",))
        fields = request.fields if self.headers else {}
        parameters = request.parameters if self.query else {}
        return self.entries.get(
            (
                request.method if self.method else "",
                *[fields.get(name) for name in self.headers],
                *[parameters.get(name) for name in self.query],
            )
        )


@dataclass(slots=True)
class _Tier:
    """Groups of equal precedence, by the first name that a request must have; "" for those without such conditions."""

    groups: dict[str, dict[tuple[bool, tuple[str, ...], tuple[str, ...]], _Group]] = field(default_factory=dict)

    def group(self, match: Match) -> _Group:
        headers = tuple(sorted(name for name, _ in match.headers))
        query = tuple(sorted(name for name, _ in match.query))
        first = f"h{headers[0]}" if headers else f"q{query[0]}" if query else ""
        key = bool(match.method), headers, query
        return self.groups.setdefault(first, {}).setdefault(key, _Group(*key))

    def find(self, request: RoutedRequest) -> Entry | None:
        best: Entry | None = None
        for first in self._relevant(request):
            for group in self.groups[first].values():
                request.count_steps(group.steps)
                entry = group.find(request)
                if entry is not None and (best is None or entry.order < best.order):
                    best = entry
        return best

    def _relevant(self, request: RoutedRequest) -> Iterable[str]:
        groups = self.groups
        if "" in groups:
            return groups
        request.count_steps(1 + min(len(groups), len(request.names)) // _PER_STEP)
        return groups.keys() & request.names


class _Bucket:
    """Matches of one path."""

    __slots__ = ("_order", "_tiers")

    def __init__(self) -> None:
        self._tiers: dict[tuple[int, bool, int, int], _Tier] = {}
        self._order: list[_Tier] | None = None

    def add(self, match: Match, entry: Entry) -> None:
        tier = (len(match.path.value), bool(match.method), len(match.headers), len(match.query))
        key = (match.method, *(v for _, v in sorted(match.headers)), *(v for _, v in sorted(match.query)))
        self._tiers.setdefault(tier, _Tier()).group(match).add(key, entry)
        self._order = None

    def find(self, request: RoutedRequest) -> Found | None:
        if self._order is None:
            self._order = [self._tiers[key] for key in sorted(self._tiers, reverse=True)]
        for tier in self._order:
            if (entry := tier.find(request)) is not None:
                return entry.found
        return None


class PathTable:
    """All conditions for one hostname."""

    def __init__(self) -> None:
        self._exact: dict[str, _Bucket] = {}
        self._prefixes: dict[str, _Bucket] = {}
        self._lengths: list[int] = []
        """Lengths of the prefixes, in ascending order."""
        self.namespace: str | None = None
        """Namespace of the routes, "" if they are of several; None without any."""

    def add(self, condition: Condition) -> None:
        match, entry = condition
        rule, prefix = entry.found
        self.namespace = rule.namespace if self.namespace in (None, rule.namespace) else ""
        if match.path.kind == "Exact":
            self._exact.setdefault(prefix, _Bucket()).add(match, entry)
            return
        if prefix not in self._prefixes:
            place = bisect_right(self._lengths, len(prefix))
            if not place or self._lengths[place - 1] != len(prefix):
                self._lengths.insert(place, len(prefix))
        self._prefixes.setdefault(prefix, _Bucket()).add(match, entry)

    def find(self, request: RoutedRequest) -> Found | None:
        """Return the rule for a request; Refused if that takes too many steps."""
        path = request.target.path
        bucket = self._exact.get(path)
        if bucket is not None and (found := bucket.find(request)) is not None:
            return found
        lengths = self._lengths
        count = bisect_right(lengths, len(path))
        request.count_steps(1 + count // _LENGTHS_PER_STEP)
        for position in range(count - 1, -1, -1):
            length = lengths[position]
            if length < len(path) and path[length] != "/":
                continue
            request.count_steps(1 + length // _CHARACTERS_PER_STEP)
            bucket = self._prefixes.get(path[:length])
            if bucket is not None and (found := bucket.find(request)) is not None:
                return found
        return None
