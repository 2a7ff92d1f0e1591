"""The marker `kubernetes`: the cluster that a test needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pytest

USE = 'kubernetes(nodes=N, load=SOURCE, time="virtual", start=DATETIME)'
TEXT = (
    f"{USE}: the test's cluster has N simulated nodes, and the objects of a source (a path, YAML text, dicts) when it "
    "begins; its time is real or virtual, and virtual time begins at `start`, in a cluster of the test's own. Markers of "
    "classes and modules hold too: the objects of all are applied, otherwise the one that is closest to the test holds."
)


@dataclass(slots=True)
class Wanted:
    """The cluster that a test needs."""

    nodes: int = 0
    time: str = "real"
    start: datetime | None = None
    load: list[Any] = field(default_factory=list)


def wanted(node: pytest.Item, default_time: str) -> Wanted:
    """Return what the markers of a test and of all around it say. Let the test fail for a wrong one."""
    found = Wanted(time=default_time)
    for marker in reversed(list(node.iter_markers("kubernetes"))):
        _apply(found, marker, node.nodeid)
    if found.start is not None and found.time != "virtual":
        pytest.fail(f'wrong marker on {node.nodeid}: start is of virtual time: add time="virtual"', pytrace=False)
    return found


def _apply(found: Wanted, marker: pytest.Mark, test: str) -> None:
    given = dict(marker.kwargs)
    nodes, time, start = given.pop("nodes", found.nodes), given.pop("time", found.time), given.pop("start", found.start)
    load = given.pop("load", None)
    if given or marker.args:
        pytest.fail(f"wrong marker on {test}: write {USE}", pytrace=False)
    if not isinstance(nodes, int) or nodes < 0:
        pytest.fail(f"wrong marker on {test}: nodes={nodes!r} is no number of nodes", pytrace=False)
    if time not in ("real", "virtual"):
        pytest.fail(f"wrong marker on {test}: time={time!r} is neither real nor virtual", pytrace=False)
    if start is not None and (not isinstance(start, datetime) or start.tzinfo is None):
        pytest.fail(f"wrong marker on {test}: start={start!r} is no datetime with a time zone", pytrace=False)
    found.nodes, found.time, found.start = nodes, time, start
    if load is not None:
        found.load.append(load)
