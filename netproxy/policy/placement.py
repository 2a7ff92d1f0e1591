"""Selects the label under which each policy selector is indexed, so that few selectors share one. No I/O. No I/O.

A pod that comes is compared with the selectors found by one of its labels (selector_index.py). Selectors often require labels
that many have in common, as all objects of a Helm release do. So each is placed at the label with the fewest selectors of its
namespace's policies, and stays there as long as one of them uses it. At most `most` of a namespace are found by the same label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from netproxy.errors import PolicyError
from netproxy.policy.selector import Selector
from netproxy.policy.selector_index import Hint, Places, alternatives

SLICE = 1_000
"""Places that are compared between suspensions."""

Kind = tuple[str, str | Hint, Hint]
"""Namespace of the policies, namespace or label of namespaces, label of pods; a hint that is no value of a label is None."""


@dataclass(slots=True)
class _Placed:
    places: Places
    users: int = 0
    """Policies of the namespace."""


class Placement:
    """The places of each namespace's selectors."""

    def __init__(self, most: int, why: str) -> None:
        """`why` is the reason if more than `most` are found by one label."""
        self._most, self._why = most, why
        self._placed: dict[tuple[str, Selector], _Placed] = {}
        self._counts: Counter[Kind] = Counter()

    def choose(
        self, namespace: str, gone: Collection[Selector], come: Collection[Selector]
    ) -> Generator[None, None, dict[Selector, Places]]:
        """Return the places of a policy's selectors, in slices; PolicyError where no label has room. Nothing is changed."""
        known = {each: self._placed.get((namespace, each)) for each in (*gone, *come)}
        chosen = {each: placed.places for each in come if (placed := known[each])}
        change: Counter[Kind] = Counter()
        for each in gone:
            if each not in chosen and (placed := known[each]) and placed.users == 1:
                change.subtract(_kinds(namespace, each, placed.places))
        looked = 0
        for each in come:
            if each not in chosen:
                chosen[each], count = self._best(namespace, each, change)
                change.update(_kinds(namespace, each, chosen[each]))
                looked += count
            if looked >= SLICE:
                looked = 0
                yield
        return chosen

    def _best(self, namespace: str, selector: Selector, change: Counter[Kind]) -> tuple[Places, int]:
        """Return the places with the fewest selectors, and how many were looked at; a value of a label goes before a key."""
        found: dict[Places, tuple[bool, float]] = {}
        looked = 0
        for places in alternatives(selector):
            kinds = _kinds(namespace, selector, places)
            looked += len(kinds)
            users = max([self._counts[kind] + change[kind] for kind in kinds], default=0)
            if users < self._most:
                found[places] = any(None in kind for kind in kinds), users
                if found[places] == (False, 0):
                    break
        if not found:
            raise PolicyError(self._why)
        return min(found, key=found.__getitem__), looked

    def add(self, namespace: str, places: Mapping[Selector, Places]) -> dict[Selector, Places]:
        """Add a policy's use of selectors, at the places chosen; return those that are new."""
        new: dict[Selector, Places] = {}
        for each, wanted in places.items():
            placed = self._placed.get((namespace, each))
            if placed is None:
                placed = self._placed[namespace, each] = _Placed(wanted)
                self._counts.update(_kinds(namespace, each, wanted))
                new[each] = wanted
            placed.users += 1
        return new

    def remove(self, namespace: str, selectors: Iterable[Selector]) -> dict[Selector, Places]:
        """Remove a policy's use of selectors; return those that none of the namespace uses."""
        gone: dict[Selector, Places] = {}
        for each in selectors:
            placed = self._placed[namespace, each]
            placed.users -= 1
            if not placed.users:
                gone[each] = self._placed.pop((namespace, each)).places
                for kind in _kinds(namespace, each, gone[each]):
                    self._counts[kind] -= 1
                    if not self._counts[kind]:
                        del self._counts[kind]
        return gone


def _kinds(namespace: str, selector: Selector, places: Places) -> set[Kind]:
    """Return what a selector counts for. That of a whole namespace always has room: there is one of each."""
    if selector.whole_namespace:
        return set()
    return {(namespace, _value(where), _value(hint)) for where, hint in places}


V = TypeVar("V")


def _value(hint: V) -> V | None:
    return None if isinstance(hint, tuple) and hint[1] is None else hint
