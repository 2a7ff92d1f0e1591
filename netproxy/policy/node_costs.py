"""Costs of the policies that select pods of this node: their rules, and the jumps to them. No I/O.

Pods that the same policies select share a chain with a jump to each of them. Where many policies select many pods in different
combinations, there are as many jumps as pairs of a pod and a policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from netproxy.policy.limits import MAX_COST_HERE, MAX_PAIRS_HERE
from netproxy.policy.model import DIRECTIONS
from netproxy.policy.table import PolicyTable


def pairs_here(table: PolicyTable, closed: Collection[str] = ()) -> dict[str, int]:
    """Return how many pods of this node each policy selects, counted for each direction in which it allows something.

    Policies that allow nothing, or are closed, are left out.
    """
    return {
        key: len(pods) * len(policy.allowing)
        for selector, pods in table.subjects_here()
        for key, policy in table.subjects.allowing(selector).items()
        if key not in closed
    }


def costs_here(table: PolicyTable, closed: Collection[str] = ()) -> dict[str, int]:
    """Return what each policy costs that selects pods of this node: its rules and address ranges, and the jumps to it."""
    pairs = pairs_here(table, closed)
    costs: Mapping[str, int] = {key: table.policies[key].cost for key in pairs}
    jumps: Mapping[str, int] = pairs
    # Grouping pods by their policies takes time in proportion to the pairs.
    if sum(costs.values()) + sum(pairs.values()) > MAX_COST_HERE and sum(pairs.values()) <= MAX_PAIRS_HERE:
        jumps = _jumps(table, pairs)
    return {key: cost + jumps[key] for key, cost in costs.items()}


def _jumps(table: PolicyTable, policies: Iterable[str]) -> Counter[str]:
    """Return how many chains of pods have a jump to each policy."""
    found: Counter[str] = Counter()
    for direction in DIRECTIONS:
        selecting: dict[str, list[str]] = {}
        for key in policies:
            policy = table.policies[key]
            if direction in policy.allowing:
                for pod in table.members_here(policy.subject):
                    selecting.setdefault(pod, []).append(key)
        for keys in {tuple(keys) for keys in selecting.values()}:
            found.update(keys)
    return found
