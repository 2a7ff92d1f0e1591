"""Keeps the number of volumes of each driver that fit on the node up to date in the CSINode.

A driver whose CSIDriver has `nodeAllocatableUpdatePeriodSeconds` is called in that interval; the scheduler uses the number
in the CSINode (KEP-4876). The CSIDriver itself is read again from time to time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging

from agent.csi.csi_node import CSINodes
from agent.csi.drivers import CSIDrivers
from agent.plugins.handler import PluginError
from cri.errors import CRIError
from kube import cancellation
from kube.api import storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError

log = logging.getLogger(__name__)

LOOK_SECONDS = 300.0
"""Interval of reading the CSIDriver of a driver without an update period."""


class Limits:
    """Keeps the numbers of all drivers in use."""

    def __init__(self, client: Client, drivers: CSIDrivers, nodes: CSINodes, *, clock: Clock) -> None:
        self._client, self._drivers, self._nodes, self._clock = client, drivers, nodes, clock

    async def run(self) -> None:
        """Work until cancelled; a node without drivers costs nothing."""
        async with asyncio.TaskGroup() as group:
            tasks: dict[str, asyncio.Task[None]] = {}
            while True:
                self._drivers.changed.clear()
                names = set(self._drivers.names())
                for name in tasks.keys() - names:
                    tasks.pop(name).cancel()
                for name in names - tasks.keys():
                    tasks[name] = group.create_task(cancellation.as_error(self._follow(name)), name=f"limits of {name}")
                await self._drivers.changed.wait()

    async def _follow(self, name: str) -> None:
        while True:
            period = await self._period(name)
            await self._clock.sleep(period or LOOK_SECONDS)
            driver = self._drivers.find(name)
            if not period or driver is None:
                continue
            try:
                info = await driver.info()
                topology = dict(info.accessible_topology.segments)
                await self._nodes.add(name, info.node_id, topology, info.max_volumes_per_node)
            except (CRIError, StatusError, PluginError) as error:
                log.warning("reading the volume limit of CSI driver %s: %s", name, error)

    async def _period(self, name: str) -> int | None:
        with contextlib.suppress(StatusError):
            return (await self._client.get(storage_v1.CSIDriver, name)).spec.node_allocatable_update_period_seconds
        return None
