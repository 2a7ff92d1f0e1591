"""States of a cluster for tests: snapshots, files of it, and histories of its changes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from wherry.testing.errors import ClusterError
from wherry.testing.timing.real import RealTime
from wherry.testing.timing.virtual import VirtualTime

if TYPE_CHECKING:
    from wherry.testing.engine import Engine
    from wherry.testing.history.history import History
    from wherry.testing.history.recorder import Recorder
    from wherry.testing.snapshots import AsyncSnapshot


class AsyncStates:
    """Methods of a cluster that runs."""

    engine: Engine
    _time: RealTime | VirtualTime
    _virtual: bool
    _recorder: Recorder | None = None

    async def snapshot(self) -> AsyncSnapshot:
        """Return the present state, which its method `restore` returns to."""
        from wherry.testing.snapshots import AsyncSnapshot

        return await AsyncSnapshot.take(self.engine)

    def record(self) -> None:
        """Record all changes of objects from now on, for `history`; forget those that were recorded before."""
        from wherry.testing.history.recorder import Recorder

        if self._recorder is None:
            self._recorder = Recorder.of(self.engine.api, self.engine.store)
        else:
            self._recorder.begin()

    def history(self, test: str = "") -> History:
        """Return the changes since `record`, of a test with a name. Raise ClusterError if nothing is recorded."""
        if self._recorder is None:
            raise ClusterError("the cluster records no history: call record() first")
        return self._recorder.history(test)

    async def save(self, path: str | Path) -> None:
        """Write the cluster's state to a file, with mode 0600, which `load` reads in another process. Raise ClusterError.

        It has all objects with Secrets, the cluster's keys, the nodes with their pods, and the scripts, but no functions.
        """
        from wherry.testing.present_state import present_state
        from wherry.testing.saving import cluster_state
        from wherry.testing.snapshots import objects_at_rest

        await self._time.rest()
        await (await objects_at_rest(self.engine.api.store)).close()
        state = present_state(self.engine, "virtual" if self._virtual else "real")
        await asyncio.to_thread(cluster_state.write, Path(path), state)
