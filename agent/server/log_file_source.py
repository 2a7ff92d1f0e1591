"""The logs of containers as the runtime writes them: files below one folder (log_files.py)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

from agent.runtime_records import ContainerRecord
from agent.server import log_files
from agent.server.container_states import ContainerStates
from agent.server.log_lines import LogOptions
from agent.server.log_threads import LogThreads
from cri.runtime_service import RuntimeService
from kube.serving.frames import SessionYield


class LogFiles:
    """The log files of this node's containers, below `logs_dir`."""

    def __init__(self, runtime: RuntimeService, logs_dir: Path) -> None:
        self._logs_dir = logs_dir
        self._states = ContainerStates(runtime)
        self._session_yield, self._threads = SessionYield(), LogThreads()

    def read(self, namespace: str, record: ContainerRecord, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yield a container's log in pieces."""

        async def running() -> bool:
            return await self._states.running(namespace, record.id)

        in_thread = self._threads.of(namespace)
        return log_files.read(self._logs_dir, Path(record.log_path), options, running, self._session_yield, in_thread)
