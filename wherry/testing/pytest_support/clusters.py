"""The clusters of all tests of a process: one of real time, one of virtual time, each started for its first test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Literal, cast

from wherry.testing.pytest_support.marker import Wanted

if TYPE_CHECKING:
    from wherry.testing.cluster import Cluster, Snapshot


@dataclass(slots=True)
class _Shared:
    cluster: Cluster
    snapshot: Snapshot


class Clusters:
    """Clusters with so many nodes at first. `record`: their changes are recorded for histories."""

    def __init__(self, nodes: int, *, record: bool) -> None:
        self._nodes, self._record = nodes, record
        self._shared: dict[str, _Shared] = {}

    @contextlib.contextmanager
    def use(self, wanted: Wanted, failed: Callable[[], bool]) -> Iterator[Cluster]:
        """Yield the cluster of a test, which returns to the state before it.

        `failed` returns at its end whether the test has failed. Raise ClusterError if it has not, but has an unused script.
        """
        if wanted.start is not None:
            cluster = self._new(wanted.time, wanted.start)
            cluster.__enter__()
            try:
                self._begin(cluster, wanted)
                yield cluster
            finally:
                cluster.__exit__(AssertionError if failed() else None)
            return
        shared = self._shared.get(wanted.time) or self._started(wanted.time)
        try:
            self._begin(shared.cluster, wanted)
            yield shared.cluster
            if not failed():
                shared.cluster.pods.check_scripts()
        finally:
            self._reset(wanted.time)

    def end(self) -> None:
        """End all clusters."""
        with contextlib.ExitStack() as stack:
            for time in list(self._shared):
                stack.callback(self._end, time)

    def _begin(self, cluster: Cluster, wanted: Wanted) -> None:
        if self._record:
            cluster.record()
        for _ in range(max(0, wanted.nodes - len(cluster.nodes))):
            cluster.add_node()
        for source in wanted.load:
            cluster.apply(source)

    def _new(self, time: str, start: datetime | None = None) -> Cluster:
        from wherry.testing.cluster import Cluster

        return Cluster(self._nodes, time=cast(Literal["real", "virtual"], time), start=start)

    def _started(self, time: str) -> _Shared:
        cluster = self._new(time)
        cluster.__enter__()
        try:
            self._shared[time] = _Shared(cluster, cluster.snapshot())
        except BaseException:
            cluster.__exit__(None)
            raise
        return self._shared[time]

    def _reset(self, time: str) -> None:
        """Return to the state before a test; a cluster that cannot is replaced for the next one."""
        try:
            self._shared[time].snapshot.restore()
        except BaseException:
            self._end(time)
            raise

    def _end(self, time: str) -> None:
        if (shared := self._shared.pop(time, None)) is not None:
            shared.cluster.__exit__(None)
