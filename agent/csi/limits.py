"""Keeps the number of volumes of each driver that fit on the node up to date in the CSINode.

A driver whose CSIDriver has `nodeAllocatableUpdatePeriodSeconds` is called in that interval, and when attaching a volume shows
that the number is wrong; the scheduler uses the number in the CSINode (KEP-4876). CSIDrivers are watched from the first driver
on.
"""

from __future__ import annotations

import asyncio
import logging

from agent.csi.csi_node import CSINodes
from agent.csi.drivers import CSIDrivers
from cri.errors import CRIError
from kube import cancellation
from kube.api import storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Informer

log = logging.getLogger(__name__)

RETRY_SECONDS = 30.0
"""Pause after an unexpected error of the watch."""


class Limits:
    """Keeps the numbers of all drivers in use."""

    def __init__(self, client: Client, drivers: CSIDrivers, nodes: CSINodes, *, clock: Clock) -> None:
        self._drivers, self._nodes, self._clock = drivers, nodes, clock
        self.about: Informer[storage_v1.CSIDriver] = Informer(client, storage_v1.CSIDriver, clock=clock)
        """CSIDrivers, watched from the first driver on."""
        self.about.subscribe(lambda change: drivers.changed.set())

    async def run(self) -> None:
        """Work until cancelled; a node without drivers costs nothing."""
        async with asyncio.TaskGroup() as group:
            watched = False
            tasks: dict[tuple[str, int], asyncio.Task[None]] = {}
            while True:
                self._drivers.changed.clear()
                names = self._drivers.names()
                if names and not watched:
                    watched = True
                    group.create_task(self._watch(), name="watch of CSIDrivers")
                wanted = {(name, period) for name in names if (period := self._period(name))}
                for key in tasks.keys() - wanted:
                    tasks.pop(key).cancel()
                for name, period in wanted - tasks.keys():
                    work = cancellation.as_error(self._follow(name, period))
                    tasks[name, period] = group.create_task(work, name=f"limits of {name}")
                await self._drivers.changed.wait()

    async def corrected(self, name: str) -> bool:
        """Have a driver's number, which is reached, read now; False if its CSIDriver does not ask for that."""
        if not self._period(name):
            return False
        await self.refresh(name)
        return True

    async def refresh(self, name: str) -> None:
        """Have a driver's number read now."""
        driver = self._drivers.find(name)
        if driver is None:
            return
        try:
            info = await driver.info()
            if self._drivers.find(name) is not driver:
                return  # it is no longer registered, or another process is
            topology = dict(info.accessible_topology.segments)
            await self._nodes.update(name, info.node_id, topology, info.max_volumes_per_node)
        except (CRIError, StatusError) as error:
            log.warning("reading the volume limit of CSI driver %s: %s", name, error)

    async def _watch(self) -> None:
        while True:
            try:
                await cancellation.as_error(self.about.run())
            except Exception:
                log.exception("the watch of CSIDrivers failed")
            await self._clock.sleep(RETRY_SECONDS)

    async def _follow(self, name: str, period: int) -> None:
        while True:
            await self._clock.sleep(period)
            await self.refresh(name)

    def _period(self, name: str) -> int | None:
        about = self.about.get(name)
        return about.spec.node_allocatable_update_period_seconds if about is not None else None
