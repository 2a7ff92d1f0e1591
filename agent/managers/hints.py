"""Topology hints: the sets of NUMA nodes that can provide a resource, and how they are merged.

Every provider (processors, memory, devices) returns for each resource the sets of nodes that can provide it, and which of them
it prefers. One hint of each is combined in every way; of the intersections the best wins: preferred by all, then the fewest
nodes, then the lowest numbers. A set of nodes is a bit mask; None means no preference
(pkg/kubelet/cm/topologymanager/policy.go).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Hint:
    """A set of NUMA nodes as a bit mask, None for any."""

    affinity: int | None = None
    preferred: bool = True


ANY = Hint()
Hints = Mapping[str, Sequence[Hint] | None]
"""By resource: None if the provider does not mind, empty where it can give it from nowhere."""


def mask_of(nodes: Iterable[int]) -> int:
    """Return the bit mask of these nodes."""
    return sum(1 << node for node in set(nodes))


def nodes_of(mask: int) -> tuple[int, ...]:
    """Return the nodes of a bit mask, ascending."""
    return tuple(node for node in range(mask.bit_length()) if mask >> node & 1)


def masks(nodes: Sequence[int]) -> list[int]:
    """Return every non-empty set of these nodes, the smallest first."""
    return [
        mask_of(chosen) for size in range(1, len(nodes) + 1) for chosen in itertools.combinations(sorted(nodes), size)
    ]


class Merger:
    """Joins hints by a policy: none, best-effort, restricted or single-numa-node."""

    def __init__(self, policy: str, nodes: Sequence[int], distances: Mapping[int, Sequence[int]] | None = None) -> None:
        """Take the machine's nodes; with `distances` of sets equally large the closest together wins."""
        self.policy, self._all, self._distances = policy, mask_of(nodes), distances

    def merge(self, provided: Iterable[Hints]) -> tuple[Hint, bool]:
        """Return the best hint and whether the policy admits a pod with it."""
        if self.policy == "none":
            return ANY, True
        lists = _by_resource(provided)
        if self.policy == "single-numa-node":
            lists = [[h for h in hints if _single(h)] for hints in lists]
        best = self._best(lists)
        if self.policy == "best-effort":
            return best, True
        if self.policy == "single-numa-node" and best.affinity == self._all:
            best = Hint(None, best.preferred)
        return best, best.preferred

    def _best(self, lists: Sequence[Sequence[Hint]]) -> Hint:
        target = max((self._least(hints) for hints in lists), default=0)
        best: Hint | None = None
        for affinity, preferred in self._combined(lists):
            merged = Hint(affinity, preferred)
            if affinity and (best is None or self._better(merged, best, target)):
                best = merged
        return best or Hint(self._all, False)

    def _combined(self, lists: Sequence[Sequence[Hint]]) -> Iterable[tuple[int, bool]]:
        """Return intersections of one hint of each list, with whether all are preferred; each once, in the product's order.

        There are at most two for each set of nodes, of which many combinations result.
        """
        found = {(self._all, True): None}
        for hints in lists:
            found = {
                (affinity if hint.affinity is None else affinity & hint.affinity, preferred and hint.preferred): None
                for affinity, preferred in found
                for hint in hints
            }
        return found

    def _least(self, hints: Sequence[Hint]) -> int:
        return min((h.affinity.bit_count() for h in hints if h.affinity is not None), default=0)

    def _better(self, new: Hint, old: Hint, target: int) -> bool:
        """Return whether a new hint is better; `target` is the least number of nodes needed where not all agree."""
        if new.preferred != old.preferred:
            return new.preferred
        a, b = new.affinity or 0, old.affinity or 0
        if new.preferred or a.bit_count() == b.bit_count() or b.bit_count() > target:
            return self._narrower(a, b)
        if b.bit_count() == target:
            return False
        return b.bit_count() < a.bit_count() <= target

    def _narrower(self, a: int, b: int) -> bool:
        if a.bit_count() != b.bit_count():
            return a.bit_count() < b.bit_count()
        if self._distances is not None and (here := self._distance(a)) != (there := self._distance(b)):
            return here < there
        return a < b

    def _distance(self, mask: int) -> float:
        """Return the mean distance between the nodes of a set."""
        assert self._distances is not None
        nodes = nodes_of(mask)
        row = [self._distances[a][b] for a in nodes for b in nodes]
        return sum(row) / len(row)


def _by_resource(provided: Iterable[Hints]) -> list[Sequence[Hint]]:
    """Flatten providers' hints; no preference counts as any, no possibility as any, not preferred."""
    lists: list[Sequence[Hint]] = []
    for hints in provided:
        if not hints:
            lists.append([ANY])
        for found in hints.values():
            if found is None:
                lists.append([ANY])
            else:
                lists.append(found or [Hint(None, False)])
    return lists


def _single(hint: Hint) -> bool:
    return hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)
