"""Resources of the members of the control plane: tasks, waiting reads, watches and objects of the watch cache."""

from __future__ import annotations

import asyncio
from collections import Counter

from simulation.world import ControlPlane


def levels(member: ControlPlane) -> Counter[str]:
    """Return the number of resources of each kind that a member uses."""
    found: Counter[str] = Counter(tasks=len(asyncio.all_tasks(member.process.loop)))
    if member.api is None:
        return found
    cache = member.api.registry.cache
    found["waiting reads"] = len(cache._waiting)
    for resource in cache._resources.values():
        found["watches"] += sum(1 for _ in resource._watchers())
        found["watched folders"] += len(resource._watched)
        found["objects"] += len(resource)
        found["recent changes"] += len(resource.recent._changes)
    return found
