"""Debug pages of the queues and their clients: /debug/api_priority_and_fairness/dump_*.

Rows and columns are upstream's, separated by commas and lined up. Seats here belong to a level and not to one of its queues (a
request that finds room is in none), so upstream's columns about a queue's seats are <none>.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Protocol

from control.fairness.fairness import Fairness
from control.fairness.level import Queue

ROOT = "/debug/api_priority_and_fairness/"
Row = Sequence[str]
NONE = "<none>"
MOST_QUEUES = 1024
"""Of a level with more queues only those in use are shown."""


def dump(path: str, fairness: Fairness, *, details: bool) -> str | None:
    """Return the document of a path below /debug/api_priority_and_fairness; None if there is no such path."""
    make = _DUMPS.get(path.removeprefix(ROOT)) if path.startswith(ROOT) else None
    return None if make is None else _lined_up(list(make(fairness, details=details)))


def _levels(fairness: Fairness, *, details: bool) -> Iterator[Row]:
    yield "PriorityLevelName", "ActiveQueues", "IsIdle", "IsQuiescing", "WaitingRequests", "ExecutingRequests"
    for name, level in fairness.levels.items():
        active = sum(1 for queue in level.lines.values() if queue.waiting)
        idle = not level.executing and not level.waiting
        # A level that is gone serves those who wait to the end, but is not in the configuration any more.
        yield name, str(active), str(idle).lower(), "false", str(level.waiting), str(level.executing)


def _queues(fairness: Fairness, *, details: bool) -> Iterator[Row]:
    seats = ("ExecutingRequests", "SeatsInUse")
    sums = ("NextDispatchR", "InitialSeatsSum", "MaxSeatsSum", "TotalWorkSum")
    yield "PriorityLevelName", "Index", "PendingRequests", *seats, *sums
    for name, level in fairness.levels.items():
        shown = range(level.queues) if level.queues <= MOST_QUEUES else sorted(level.lines)
        for index in () if level.exempt else shown:
            queue = level.lines.get(index) or Queue()
            wanted = sum(waiter.width for waiter in queue.waiting)
            work = [f"{queue.served:.8f}ss", str(wanted), str(wanted), f"{wanted:.8f}ss"]
            yield name, str(index), str(len(queue.waiting)), NONE, NONE, *work


def _requests(fairness: Fairness, *, details: bool) -> Iterator[Row]:
    names = ["PriorityLevelName", "FlowSchemaName", "QueueIndex", "RequestIndexInQueue", "FlowDistingsher"]
    names += ["ArriveTime", "InitialSeats", "FinalSeats", "AdditionalLatency"]
    if details:
        names += ["UserName", "Verb", "APIPath", "Namespace", "Name", "APIVersion", "Resource", "SubResource"]
    yield names
    for name, level in fairness.levels.items():
        for index, queue in sorted(level.lines.items()):
            for place, waiter in enumerate(queue.waiting):
                about = waiter.about
                if about is None:
                    continue
                since = datetime.fromtimestamp(waiter.since, UTC).isoformat().replace("+00:00", "Z")
                row = [name, about.schema, str(index), str(place), about.who, since, str(waiter.width), "0", "0s"]
                if details:
                    info = about.info
                    version = f"{info.group}/{info.version}" if info.group else info.version
                    row += [about.user.name, info.verb, info.path, info.namespace, info.name]
                    row += [version, info.resource, info.subresource]
                yield row


class _Dump(Protocol):
    """Yields the rows of a page; with `details` those of each request have more columns."""

    def __call__(self, fairness: Fairness, *, details: bool) -> Iterator[Row]: ...


_DUMPS: dict[str, _Dump] = {
    "dump_priority_levels": _levels,
    "dump_queues": _queues,
    "dump_requests": _requests,
}


def _lined_up(rows: list[Row]) -> str:
    """Write rows with a comma behind every cell but the last, and cells under one another."""
    widths = [max(len(row[i]) + 2 for row in rows) for i in range(len(rows[0]) - 1)]
    lines = []
    for row in rows:
        cells = [f"{cell},".ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append("".join(cells) + row[-1] + "\n")
    return "".join(lines)
