"""Tens of thousands of conjunctions of label requirements, compared with an object's labels at the cost of the labels.

A pod of 1 MiB has so many affinity terms, and each is compared with every pod or node. Each conjunction is one bit of an
integer. What a label forbids is looked up by its key and value, so the labels that an object has clear the bits of all
conjunctions at once. Conjunctions that need keys are found by the keys that the object has.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import TypeVar

from kube.label_rules import whole

Requirement = tuple[str, str, Collection[str]]
"""Key, operator (as of kube.selectors.Requirement), values."""
Conjunction = Iterable[Requirement]
"""Requirements that must all hold."""
MOST_REMEMBERED, MOST_BYTES = 64, 256 * 1024
"""Entries of each cache, and bytes of all but its latest one."""
KEY_BYTES = 80
"""Memory for one key in the set of those that an object has."""
_BLOCK = 256
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Alternatives:
    """Conjunctions by number; None stands for one that never holds."""

    def __init__(self, conjunctions: Sequence[Conjunction | None]) -> None:
        self.count = len(conjunctions)
        self.keys: set[str] = set()
        self._forbidden: dict[str, list[int]] = defaultdict(list)
        self._limited: dict[str, list[int]] = defaultdict(list)
        self._among: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._refused: dict[tuple[str, str], list[int]] = defaultdict(list)
        above: dict[str, list[tuple[int, int]]] = defaultdict(list)
        below: dict[str, list[tuple[int, int]]] = defaultdict(list)
        needs: dict[frozenset[str], list[int]] = defaultdict(list)
        for number, conjunction in enumerate(conjunctions):
            needed = self._add(number, conjunction, above, below) if conjunction is not None else None
            if needed is not None:
                needs[needed].append(number)
        self._above = {key: _Bounds(found) for key, found in above.items()}
        self._below = {key: _Bounds(found) for key, found in below.items()}
        self._needs = _by_rarest_key(needs)
        self._able = _Cache[frozenset[str], int]()
        self._bad = _Cache[tuple[str, str], int]()
        self._fixed = _Cache[str, tuple[int, int]]()

    def _add(
        self,
        number: int,
        conjunction: Conjunction,
        above: dict[str, list[tuple[int, int]]],
        below: dict[str, list[tuple[int, int]]],
    ) -> frozenset[str] | None:
        """Add a conjunction and return the keys that it needs; None if it never holds."""
        needed: set[str] = set()
        among: dict[str, Collection[str]] = {}
        least: dict[str, int] = {}
        most: dict[str, int] = {}
        for key, operator, values in conjunction:
            self.keys.add(key)
            if operator not in ("notin", "!"):
                needed.add(key)
            if operator == "in":
                among[key] = set(values).intersection(among[key]) if key in among else values
            elif operator == "notin":
                for value in values:
                    self._refused[key, value].append(number)
            elif operator == "!":
                self._forbidden[key].append(number)
            elif operator in ("gt", "lt"):
                bound = whole(next(iter(values), ""))
                if bound is None:
                    return None
                if operator == "gt":
                    least[key] = max(bound, least.get(key, bound))
                else:
                    most[key] = min(bound, most.get(key, bound))
            elif operator != "exists":
                return None
        for bounds, found in ((least, above), (most, below)):
            for key, bound in bounds.items():
                found[key].append((bound, number))
        for key, allowed in among.items():
            self._limited[key].append(number)
            for value in allowed:
                self._among[key, value].append(number)
        return frozenset(needed)

    def matching(self, labels: Mapping[str, str]) -> int:
        """Return the conjunctions that hold for an object: its bit is 1 << number."""
        present = frozenset(labels.keys() & self.keys)
        found = self._with_keys(present) if len(present) <= MOST_REMEMBERED else self._one_by_one(present, labels)
        for key in present if len(present) <= MOST_REMEMBERED else ():
            if not found:
                break
            found &= ~self._excluded(key, labels[key])
        return found

    def _with_keys(self, present: frozenset[str]) -> int:
        """Return the conjunctions all of whose keys are present."""
        known = self._able.get(present)
        if known is None:
            known = mask(self._able_with(present))
            self._able.put(present, known, KEY_BYTES * len(present) + _bytes(known))
        return known

    def _able_with(self, present: frozenset[str]) -> list[int]:
        able: list[int] = []
        for key in (None, *present):
            for needed, numbers in self._needs.get(key, ()):
                if needed <= present:
                    able += numbers
        return able

    def _one_by_one(self, present: frozenset[str], labels: Mapping[str, str]) -> int:
        """Return the conjunctions that hold with many labels: a mask for each label would cost more."""
        able = mask(self._able_with(present))
        return able & ~mask(self._all_excluded(present, labels)) if able else 0

    def _all_excluded(self, present: Iterable[str], labels: Mapping[str, str]) -> list[int]:
        found: list[int] = []
        for key in present:
            value = labels[key]
            if limited := self._limited.get(key):
                among = self._among.get((key, value))
                found += limited if among is None else set(limited).difference(among)
            found += self._refused.get((key, value), ())
            found += self._forbidden.get(key, ())
            if key in self._above or key in self._below:
                number = whole(value)
                found += self._above.get(key, _NO_BOUNDS).from_on(number)
                found += self._below.get(key, _NO_BOUNDS).at_most(number)
        return found

    def _excluded(self, key: str, value: str) -> int:
        """Return the conjunctions that do not hold where a label has this value."""
        known = self._bad.get((key, value))
        if known is None:
            limited, forbidden = self._of_key(key)
            known = limited & ~mask(self._among.get((key, value), ()))
            known |= mask(self._refused.get((key, value), ())) | forbidden
            if key in self._above or key in self._below:
                known |= self._out_of_bounds(key, whole(value))
            self._bad.put((key, value), known, len(value) + _bytes(known))
        return known

    def _of_key(self, key: str) -> tuple[int, int]:
        """Return the conjunctions that name the key's values, and those that forbid the key."""
        known = self._fixed.get(key)
        if known is None:
            known = mask(self._limited.get(key, ())), mask(self._forbidden.get(key, ()))
            self._fixed.put(key, known, sum(map(_bytes, known)))
        return known

    def _out_of_bounds(self, key: str, number: int | None) -> int:
        above, below = self._above.get(key, _NO_BOUNDS), self._below.get(key, _NO_BOUNDS)
        if number is None:
            return above.all | below.all
        return (above.all & ~above.less(number)) | below.up_to(number)


class _Bounds:
    """The bounds that conjunctions set to one label, in order, with what is set up to every 256th of them."""

    def __init__(self, bounds: list[tuple[int, int]]) -> None:
        bounds.sort()
        self._bounds = [bound for bound, _ in bounds]
        self._numbers = [number for _, number in bounds]
        self._sums = [0]
        for start in range(0, len(bounds), _BLOCK):
            self._sums.append(self._sums[-1] | mask(self._numbers[start : start + _BLOCK]))
        self.all = self._sums[-1]

    def less(self, number: int) -> int:
        """Return the conjunctions with a bound below a number."""
        return self._first(bisect_left(self._bounds, number))

    def up_to(self, number: int) -> int:
        """Return the conjunctions with a bound that is at most a number."""
        return self._first(bisect_right(self._bounds, number))

    def from_on(self, number: int | None) -> list[int]:
        """Return the conjunctions with a bound that is at least a number; all for what is no number."""
        return self._numbers[bisect_left(self._bounds, number) if number is not None else 0 :]

    def at_most(self, number: int | None) -> list[int]:
        """Return the conjunctions with a bound that is at most a number; all for what is no number."""
        return self._numbers[: bisect_right(self._bounds, number) if number is not None else None]

    def _first(self, count: int) -> int:
        whole_blocks = count // _BLOCK
        return self._sums[whole_blocks] | mask(self._numbers[whole_blocks * _BLOCK : count])


_NO_BOUNDS = _Bounds([])


def mask(numbers: Sequence[int]) -> int:
    """Return the integer with these bits, at the cost of their number and of the highest one's length."""
    if len(numbers) < 4:
        return sum({1 << number for number in numbers})
    bits = bytearray((max(numbers) >> 3) + 1)
    for number in numbers:
        bits[number >> 3] |= 1 << (number & 7)
    return int.from_bytes(bits, "little")


def _by_rarest_key(
    needs: Mapping[frozenset[str], list[int]],
) -> dict[str | None, list[tuple[frozenset[str], list[int]]]]:
    """Arrange conjunctions under that of their keys which the fewest others need: few are then looked at in vain."""
    uses = Counter(key for needed in needs for key in needed)
    found: dict[str | None, list[tuple[frozenset[str], list[int]]]] = {}
    for needed, numbers in needs.items():
        rarest = min(needed, key=lambda key: (uses[key], key), default=None)
        found.setdefault(rarest, []).append((needed, numbers))
    return found


class _Cache(dict[K, V]):
    """Cached results, as long as they are few and small."""

    __slots__ = ("_total_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self._total_bytes = 0

    def put(self, key: K, value: V, size: int) -> None:
        """Cache a result of so many bytes with its key."""
        if len(self) >= MOST_REMEMBERED or self._total_bytes + size > MOST_BYTES:
            self.clear()
            self._total_bytes = 0
        self[key] = value
        self._total_bytes += size


def _bytes(mask: int) -> int:
    return mask.bit_length() >> 3
