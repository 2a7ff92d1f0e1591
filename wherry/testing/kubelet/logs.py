"""Reads the logs of simulated containers for `kubectl logs`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from agent.runtime_records import ContainerRecord
from agent.server.log_lines import LogOptions, LogWriter
from wherry.testing.kubelet.node_pods import NodePods

LINES = 256
"""Lines that are sent before others get their turn in the event loop."""


class SimulatedLogs:
    """The logs of a node's containers."""

    def __init__(self, pods: NodePods) -> None:
        self._pods = pods

    async def read(self, namespace: str, record: ContainerRecord, options: LogOptions) -> AsyncGenerator[bytes, None]:
        """Yield a log in pieces; with `follow`, until the container has ended."""
        container = self._pods.container(record.id)
        if container is None:
            raise ValueError(f"the container {record.name} is gone")
        log, writer = container.log, LogWriter(options)
        position = log.tail(options.tail_lines)
        while not writer.full:
            lines, position = log.after(position, LINES)
            if lines:
                if data := b"".join(map(writer.write, lines)):
                    yield data
                await asyncio.sleep(0)
            elif log.closed or not options.follow:
                return
            else:
                await log.changed()
