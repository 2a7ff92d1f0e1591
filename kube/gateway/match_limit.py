"""The limit on matches of HTTPRoutes of one namespace, over all Gateways.

What the routes of a namespace use at older Gateways is not left to newer ones, so the controller and the nodes admit the same
routes. A Gateway is computed again when what is left does not suffice any more, or may suffice for what was refused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

MOST_MATCHES = 8192
"""Matches that the routes of one namespace may have, counted for each hostname at each listener of each Gateway."""
Age = tuple[str, str]
"""Creation and key of a Gateway; smaller for the older one."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Matches of a Gateway's routes by the namespaces of these, and the namespaces of which some were refused."""

    matches: Mapping[str, int]
    refused: frozenset[str]

    @property
    def namespaces(self) -> set[str]:
        return self.matches.keys() | self.refused


NOTHING = Usage({}, frozenset())


class MatchLimit:
    """Usage by Gateways. `affected` is called with the key of each Gateway that has to be computed again."""

    def __init__(self, affected: Callable[[str], None]) -> None:
        self._affected = affected
        self._gateways: dict[str, tuple[Age, Usage]] = {}
        self._keys: dict[str, set[str]] = {}
        """Keys of Gateways by the namespaces of their routes."""

    def used_before(self, age: Age, namespaces: Iterable[str]) -> Counter[str]:
        """Return what the routes of namespaces use at the Gateways that are older than one."""
        found = Counter[str]()
        for namespace in set(namespaces):
            for key in self._keys.get(namespace, ()):
                other, usage = self._gateways[key]
                if other < age:
                    found[namespace] += usage.matches.get(namespace, 0)
        return found

    def record(self, age: Age, usage: Usage, before: Mapping[str, int]) -> None:
        """Record the usage of a Gateway, computed with `before`, and report those that it affects."""
        key = age[1]
        old_age, old = self._remove(key) or (age, NOTHING)
        self._gateways[key] = age, usage
        for namespace in usage.namespaces:
            self._keys.setdefault(namespace, set()).add(key)
        now = self.used_before(age, usage.namespaces)
        if any(now[each] != before.get(each, 0) and self._matters(key, each, now[each]) for each in usage.namespaces):
            self._affected(key)  # an older one was recorded during the computation
        self._report(min(age, old_age), _changed(old, usage) if age == old_age else old.namespaces | usage.namespaces)

    def forget(self, key: str) -> None:
        """Forget a Gateway that is not served any more, and report those that it affects."""
        if (found := self._remove(key)) is not None:
            self._report(found[0], found[1].namespaces)

    def _remove(self, key: str) -> tuple[Age, Usage] | None:
        found = self._gateways.pop(key, None)
        if found is not None:
            for namespace in found[1].namespaces:
                self._keys[namespace].discard(key)
                if not self._keys[namespace]:
                    del self._keys[namespace]
        return found

    def _report(self, age: Age, namespaces: Iterable[str]) -> None:
        """Report the newer Gateways for which a change of usage matters."""
        for namespace in namespaces:
            used = 0
            for other, key in sorted((self._gateways[key][0], key) for key in self._keys.get(namespace, ())):
                if other > age and self._matters(key, namespace, used):
                    self._affected(key)
                used += self._gateways[key][1].matches.get(namespace, 0)

    def _matters(self, key: str, namespace: str, used: int) -> bool:
        """Return whether the routes of a namespace were refused at a Gateway, or do not fit with what older ones use."""
        usage = self._gateways[key][1]
        return namespace in usage.refused or used + usage.matches.get(namespace, 0) > MOST_MATCHES


def _changed(old: Usage, new: Usage) -> set[str]:
    """Return the namespaces with another number of matches."""
    return {each for each in old.namespaces | new.namespaces if old.matches.get(each, 0) != new.matches.get(each, 0)}
