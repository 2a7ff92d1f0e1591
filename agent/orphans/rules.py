"""Which items on the machine are nobody's. Pure functions.

A sandbox that is being started has its namespace, its address and its shim before CRI shows it. So an item that has no
owner is removed where it is older than containerd's process, which therefore did not make it; or where it has had no
owner at so many looks in a row that the agent's request would have ended long ago.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.orphans.machine import LEASE, NETNS, Item


@dataclass(frozen=True, slots=True)
class Owners:
    """Who may own something: IDs of sandboxes and containers, and the namespaces that sandboxes have."""

    ids: frozenset[str]
    namespaces: frozenset[str] = frozenset()


def looks_needed(request_timeout: float, period: float) -> int:
    """Return the number of looks, `period` seconds apart, after which no start of a sandbox can be under way.

    RunPodSandbox may take twice the request timeout (cri/runtime_service.py).
    """
    return 2 + math.ceil(2 * request_timeout / period)


def ownerless(items: Iterable[Item], owners: Owners) -> list[Item]:
    """Return the items that nobody in `owners` has."""
    return [i for i in items if (i.name not in owners.namespaces if i.kind == NETNS else i.owner not in owners.ids)]


def seen_again(items: Iterable[Item], before: Mapping[Item, int]) -> dict[Item, int]:
    """Count the looks in a row at which each item had no owner."""
    return {item: before.get(item, 0) + 1 for item in items}


def abandoned(seen: Mapping[Item, int], began: float, looks: int) -> list[Item]:
    """Return what is to be removed; `began` is the start of containerd's process.

    A lease tells nothing of who works with it, so only the age counts: it ends by itself after a day.
    """
    return [item for item, times in seen.items() if item.born < began or (times >= looks and item.kind != LEASE)]
