"""Finds the policies because of which a table is refused, so that one namespace's policy does not hold up all others'.

What is refused is found by offering the kernel the whole table with ever fewer policies' rules in it; nothing is changed.
A policy that is left out of the rules still selects its pods, so they are isolated: it fails closed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from netproxy.policy.rules import Rulesets
from netproxy.policy.sync import PolicyBackend


async def refused_policies(rulesets: Rulesets, backend: PolicyBackend) -> frozenset[str]:
    """Return the keys of policies without whose rules the table is taken; none where it is refused for another reason.

    One that was changed meanwhile is left out: what it is now was not looked at.
    """
    before = dict(rulesets.table.policies)
    every = sorted(before.keys() - rulesets.closed)

    async def refused(keys: Collection[str]) -> bool:
        closed = rulesets.table.policies.keys() - set(keys)
        return await backend.refuses(rulesets.make(closed=closed))

    async def search(keys: Sequence[str]) -> set[str]:
        """Return which of policies that are refused together are to be left out."""
        if len(keys) == 1:
            return set(keys)
        middle = len(keys) // 2
        found: set[str] = set()
        for half in (keys[:middle], keys[middle:]):
            if await refused(half):
                found |= await search(half)
        return found or set(keys)

    if not every or not await refused(every) or await refused(()):
        return frozenset()
    found = await search(every)
    return frozenset(key for key in found if rulesets.table.policies.get(key) is before[key])
