"""Resources of the members of the control plane: in peace they are at their level, whatever has happened before.

Members run the same code, so what one has more than the others, apart from what clients and leaders use, is a leak.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

import msgspec
from msgspec.structs import replace

from control.assembly.api_server import ApiServer
from simulation.world import ControlPlane

MOST_TASKS = 350
"""Tasks of a member with all controllers and the scheduler, without those of watches."""
TASKS_PER_WATCH = 3
MOST_GROWTH = 10
"""Tasks by which a member may grow during some minutes of peace: those of timers and heartbeats come and go."""


class Level(msgspec.Struct, frozen=True):
    """Resources that a member uses."""

    member: str
    tasks: int
    client_watches: int
    own_watches: int
    """Watches of the server itself."""
    objects: int
    """In the watch cache."""
    under_way: dict[str, int]
    """Reads and writes that have not ended."""


def levels(members: Sequence[ControlPlane]) -> list[Level]:
    """Return the resources of the members that serve."""
    return [_level(member, member.api) for member in members if member.api is not None]


def _level(member: ControlPlane, api: ApiServer) -> Level:
    tasks = asyncio.all_tasks(member.process.loop)
    cache, client_watches = api.registry.cache, sum(task.get_name() == "watch" for task in tasks)
    resources = cache._resources.values()
    watches = sum(1 for resource in resources for _ in resource._watchers())
    return Level(
        member.name,
        len(tasks),
        client_watches,
        watches - client_watches,
        sum(map(len, resources)),
        {
            "reads that wait for a revision": len(cache._waiting),
            "reads of old changes": len(cache.history._reading),
            "evaluations of selectors": cache.evaluations.waiting,
            "writes": len(api.registry.unfinished),
        },
    )


def lowest(samples: Sequence[Sequence[Level]]) -> list[Level]:
    """Return the newest levels with the fewest tasks, reads and writes of all samples: heartbeats have some at a moment."""
    found = []
    for level in samples[-1]:
        own = [each for sample in samples for each in sample if each.member == level.member]
        under_way = {what: min(each.under_way[what] for each in own) for what in level.under_way}
        found.append(replace(level, tasks=min(each.tasks for each in own), under_way=under_way))
    return found


def leaks(before: Sequence[Level], after: Sequence[Level]) -> Iterator[tuple[str, str]]:
    """Compare the levels of all members at the beginning and at the end of some minutes of peace."""
    for level in after:
        for what, number in level.under_way.items():
            if number:
                yield "level", f"{level.member}: {number} {what} have not ended"
        most = MOST_TASKS + TASKS_PER_WATCH * level.client_watches
        if level.tasks > most:
            yield "level", f"{level.member}: {level.tasks} tasks are more than {most}"
    for kind in ("own_watches", "objects"):
        numbers = {level.member: getattr(level, kind) for level in after}
        if len(set(numbers.values())) > 1:
            yield "level", f"members differ in their number of {kind.replace('_', ' ')}: {numbers}"
    tasks = {level.member: level.tasks for level in before}
    for level in after:
        if level.tasks > tasks.get(level.member, level.tasks) + MOST_GROWTH:
            yield "level", f"{level.member}: grows from {tasks[level.member]} to {level.tasks} tasks in peace"
