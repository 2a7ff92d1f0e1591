"""Decides which resources are orphans. Pure functions.

A sandbox that is being started has its namespace, its address and its shim before CRI lists it. So a resource without an owner
is an orphan if it is older than containerd's process, which therefore did not create it; or if it had no owner in so many
sweeps in a row that the request that started the sandbox must have ended.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.orphans.machine import LEASE, NETNS, Item


@dataclass(frozen=True, slots=True)
class Owners:
    """Owners of resources: IDs of sandboxes and containers, and network namespaces of sandboxes."""

    ids: frozenset[str]
    namespaces: frozenset[str] = frozenset()


def sweeps_needed(request_timeout: float, period: float) -> int:
    """Return the number of sweeps, `period` seconds apart, after which no start of a sandbox can be under way.

    RunPodSandbox may take twice the request timeout (cri/runtime_service.py).
    """
    return 2 + math.ceil(2 * request_timeout / period)


def namespaces_in_use(sandboxes: Iterable[str], names: Iterable[str]) -> frozenset[str]:
    """Return those of the named network namespaces that sandboxes use, by what CRI knows of each sandbox (JSON).

    Of the runtime's specification only the namespaces count: annotations, which a pod's author writes, may name any path. Where
    there is none, the whole text counts.
    """
    names, found = list(names), set[str]()
    for text in sandboxes:
        paths = [text]
        with contextlib.suppress(ValueError, TypeError, AttributeError, KeyError):
            paths = [str(each.get("path")) for each in json.loads(text)["runtimeSpec"]["linux"]["namespaces"]]
        found.update(name for name in names if any(name in path for path in paths))
    return frozenset(found)


def ownerless(items: Iterable[Item], owners: Owners) -> list[Item]:
    """Return the items without an owner in `owners`."""
    return [i for i in items if (i.name not in owners.namespaces if i.kind == NETNS else i.owner not in owners.ids)]


def seen_again(items: Iterable[Item], before: Mapping[Item, int]) -> dict[Item, int]:
    """Return for each item the number of sweeps in a row in which it had no owner."""
    return {item: before.get(item, 0) + 1 for item in items}


def abandoned(seen: Mapping[Item, int], began: float, looks: int) -> list[Item]:
    """Return the orphans to remove; `began` is the start time of containerd's process.

    A lease does not name its user, so only its age counts: it expires by itself after a day.
    """
    return [item for item, times in seen.items() if item.born < began or (times >= looks and item.kind != LEASE)]
