"""Finds the policies that make a write fail, so that they neither delay nor close those of other namespaces.

What is refused is found by offering the kernel the whole table with ever fewer policies' rules in it; nothing is changed.
First the policies of each namespace are offered without those of others: whatever is refused then is that namespace's own
fault. Only if all that pass alone are refused together, or a write takes too long, policies are closed for their size: always
the largest of the namespace that costs most by then, so a namespace is spared as long as another costs more.
A policy that is left out of the rules still selects its pods, so they are isolated: it fails closed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

from netproxy.policy.backend import PolicyBackend
from netproxy.policy.node_costs import costs_here
from netproxy.policy.rules import RulesetBuilder

ATTEMPTS = 32
"""Checks to find the refused policies of one namespace; one of 10 000 takes 27. Those not found apart by then are closed."""
MAX_CHECKS = 256
"""Offers of one search in all namespaces, but for some more to close policies for their size. Each takes up to two seconds, and
no change of a policy is written meanwhile. Namespaces that are not separated by then are closed."""
MIN_COST = 1_000
"""The cost up to which no policy is closed for a write that takes too long."""

Refused = Callable[[Collection[str]], Awaitable[bool]]
"""Returns whether the kernel refuses a table with the rules of these policies alone."""


async def refused_policies(rulesets: RulesetBuilder, backend: PolicyBackend) -> frozenset[str]:
    """Return the keys of policies without whose rules the table is accepted; none where it is refused for another reason.

    One that was changed meanwhile is left out: what it is now was not looked at.
    """
    before = dict(rulesets.table.policies)

    async def refused(keys: Collection[str]) -> bool:
        closed = rulesets.table.policies.keys() - set(keys)
        return await backend.refuses(rulesets.build(closed=closed))

    costs = costs_here(rulesets.table, rulesets.closed)
    if not costs or not await refused(costs) or await refused(()):
        return frozenset()
    found = await search(costs, refused)
    return frozenset(key for key in found if rulesets.table.policies.get(key) is before[key])


def costly_policies(rulesets: RulesetBuilder) -> frozenset[str]:
    """Return the policies to close so that the table costs half; none where it costs at most `MIN_COST`."""
    costs = costs_here(rulesets.table, rulesets.closed)
    total = left = sum(costs.values())
    found: set[str] = set()
    for key in by_cost(costs) if total > MIN_COST else ():
        if left <= total / 2:
            break
        left -= costs[key]
        found.add(key)
    return frozenset(found)


class _Checks:
    """Asks the kernel, and counts the checks that are left."""

    def __init__(self, refused: Refused) -> None:
        self._refused, self.left = refused, MAX_CHECKS

    async def __call__(self, keys: Collection[str]) -> bool:
        self.left -= 1
        return await self._refused(keys)


async def search(costs: Mapping[str, int], refused: Refused) -> set[str]:
    """Return the policies to close, of policies that are refused together."""
    namespaces: defaultdict[str, list[str]] = defaultdict(list)
    for key in sorted(costs):
        namespaces[namespace_of(key)].append(key)
    checks, found = _Checks(refused), set[str]()
    for group in await _refused_alone(list(namespaces.values()), checks):
        keys = _all(group)
        if len(group) > 1 or checks.left < ATTEMPTS:
            found.update(keys)
            continue
        found |= await _single(keys, checks)
        found |= await _too_large([key for key in keys if key not in found], costs, checks)
    return found | await _too_large([key for key in costs if key not in found], costs, refused)


async def _refused_alone(namespaces: Sequence[Sequence[str]], checks: _Checks) -> list[Sequence[Sequence[str]]]:
    """Return groups of namespaces that are refused without others; of one each, unless there are too many.

    The largest group is halved first, so that groups that are not separated are small.
    """
    if not await checks(_all(namespaces)):
        return []
    found, waiting = list[Sequence[Sequence[str]]](), deque([namespaces])
    while waiting:
        group = waiting.popleft()
        if len(group) == 1 or checks.left < ATTEMPTS:
            found.append(group)
            continue
        middle = len(group) // 2
        for half in (group[:middle], group[middle:]):
            if await checks(_all(half)):
                waiting.append(half)
    return found


def _all(namespaces: Iterable[Iterable[str]]) -> list[str]:
    return [key for keys in namespaces for key in keys]


async def _single(keys: Sequence[str], refused: Refused) -> set[str]:
    """Return the policies of a refused namespace that are refused alone."""
    found: set[str] = set()
    parts, attempts = [keys], ATTEMPTS
    while parts:
        part = parts.pop()
        if len(part) == 1 or not attempts:
            found.update(part)
            continue
        middle = len(part) // 2
        for half in (part[middle:], part[:middle]):
            attempts -= 1
            if await refused(half):
                parts.append(half)
    return found


async def _too_large(keys: Sequence[str], costs: Mapping[str, int], refused: Refused) -> set[str]:
    """Return the fewest of the most costly policies without which the others are accepted."""
    if not keys or not await refused(keys):
        return set()
    order = by_cost({key: costs[key] for key in keys})
    few, enough = 0, len(order)
    while enough - few > 1:
        middle = (few + enough) // 2
        if await refused(order[middle:]):
            few = middle
        else:
            enough = middle
    return set(order[:enough])


def by_cost(costs: Mapping[str, int]) -> list[str]:
    """Return policies in the order to close them: each is the largest of the namespace that then costs most."""
    waiting: defaultdict[str, list[str]] = defaultdict(list)
    for key in sorted(costs, key=lambda each: (costs[each], each)):
        waiting[namespace_of(key)].append(key)
    totals = [(-sum(costs[key] for key in keys), namespace) for namespace, keys in waiting.items()]
    heapq.heapify(totals)
    order: list[str] = []
    while totals:
        total, namespace = totals[0]
        order.append(waiting[namespace].pop())
        if waiting[namespace]:
            heapq.heapreplace(totals, (total + costs[order[-1]], namespace))
        else:
            heapq.heappop(totals)
    return order


def namespace_of(key: str) -> str:
    return key.partition("/")[0]
