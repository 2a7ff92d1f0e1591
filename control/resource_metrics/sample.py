"""One scrape of a node: parses its agent's /metrics/resource into counters.

The text is Prometheus' exposition format; only the families for the resource metrics API are parsed, with the kubelet's
names (pkg/kubelet/metrics/collectors/resource_metrics.go). A sample has the time at which the agent measured it, which may
be earlier than the scrape. Values that no machine has, and times far from this server's clock, are left out: metrics of all
nodes are in one list, and clients written in Go cannot read a window beyond 64 bits of nanoseconds.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping

import msgspec

from control.event_loop.pacing import TimeSlice

Container = tuple[str, str, str]
"""Namespace, pod, container."""
_LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*+)="([^"\\]*+(?:\\.[^"\\]*+)*+)"')
_ESCAPE = re.compile(r"\\(.)")
LONGEST_LINE = 4096
"""Characters of a line that is read. The names in its labels have 400 at most."""
MOST_CONTAINERS = 8192
LARGEST = float(1 << 53)
"""Of values: core-seconds, bytes, seconds since the epoch."""
FARTHEST = 3600.0
"""Seconds by which a timestamp may differ from the clock of this server."""


class Point(msgspec.Struct, frozen=True):
    """Counters at a time: `cpu` in core-seconds since the start, `memory` the working set in bytes."""

    time: float
    cpu: float
    memory: float
    started: float = 0.0
    """Seconds since the epoch; 0 if it is not known."""


class NodeSample(msgspec.Struct, frozen=True):
    """All points of one scrape."""

    node: Point | None
    containers: Mapping[Container, Point] = msgspec.field(default_factory=dict)


class _Fields(msgspec.Struct):
    time: float
    cpu: float | None = None
    memory: float | None = None
    started: float = 0.0

    def point(self) -> Point | None:
        if self.cpu is None or self.memory is None:
            return None
        return Point(self.time, self.cpu, self.memory, self.started)


async def parse(text: str, now: float) -> NodeSample:
    """Parse a scrape; lines without a timestamp get `now` (seconds since the epoch)."""
    node = _Fields(now)
    containers: dict[Container, _Fields] = {}
    async for name, labels, value, time in _lines(text, now):
        if name == "node_cpu_usage_seconds_total":
            node.cpu, node.time = value, time
        elif name == "node_memory_working_set_bytes":
            node.memory = value
        elif name.startswith("container_"):
            key = labels.get("namespace", ""), labels.get("pod", ""), labels.get("container", "")
            if len(containers) >= MOST_CONTAINERS and key not in containers:
                continue
            parts = containers.setdefault(key, _Fields(now))
            if name == "container_cpu_usage_seconds_total":
                parts.cpu, parts.time = value, time
            elif name == "container_memory_working_set_bytes":
                parts.memory = value
            elif name == "container_start_time_seconds":
                parts.started = value
    points = {key: point for key, parts in containers.items() if (point := parts.point()) is not None}
    return NodeSample(node.point(), points)


async def _lines(text: str, now: float) -> AsyncIterator[tuple[str, dict[str, str], float, float]]:
    slice_ = TimeSlice()
    begin = 0
    while begin < len(text):
        end = text.find("\n", begin)
        end = end if end >= 0 else len(text)
        await slice_.step(end - begin)
        if end - begin <= LONGEST_LINE and text.startswith(("node_", "container_"), begin):
            found = _line(text[begin:end], now)
            if found is not None:
                yield found
        begin = end + 1


def _line(line: str, now: float) -> tuple[str, dict[str, str], float, float] | None:
    head, brace, rest = line.partition("{")
    if brace:
        inside, _, numbers = rest.rpartition("}")
        labels = {key: _ESCAPE.sub(_unescape, value) for key, value in _LABEL.findall(inside)}
    else:
        head, _, numbers = line.partition(" ")
        labels = {}
    words = numbers.split()
    try:
        value = float(words[0])
        time = int(words[1]) / 1000 if len(words) > 1 else now
    except (IndexError, ValueError, OverflowError):
        return None
    if not (0 <= value <= LARGEST and abs(time - now) <= FARTHEST):  # neither is not a number
        return None
    return head.strip(), labels, value, time


def _unescape(match: re.Match[str]) -> str:
    return "\n" if match.group(1) == "n" else match.group(1)
