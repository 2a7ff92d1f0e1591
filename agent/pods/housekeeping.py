"""Removes directories, cgroups, logs and links of deleted pods.

A pod's worker normally removes them. This is for what a killed agent, a crash or a reboot left: once a minute, everything that
carries the UID of a pod that neither the agent nor the runtime has is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from agent.cgroups.tree import Cgroups
from agent.files.walk import remove
from agent.keyed_tasks import KeyedTasks
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.pods.resource_state import PodResourceStates
from agent.volumes.cleanup import CleanupError
from agent.volumes.manager import VolumeManager
from kube.clock import Clock

log = logging.getLogger(__name__)

PERIOD_SECONDS = 60.0
WAIT_SECONDS = 5.0
"""Time that a sweep waits for pods' directories and for volumes: a storage driver that hangs blocks its own alone."""
_REMOVED = ".removed-"
"""Begins the name of a log folder that is being removed."""


class Housekeeping:
    """Removes what belongs to no pod; `known` returns the UIDs of those that live."""

    def __init__(
        self,
        known: Callable[[], set[str]],
        volumes: VolumeManager,
        resources: PodResourceStates,
        cgroups: Cgroups | None,
        pod_logs_dir: Path,
        container_logs_dir: Path,
        *,
        clock: Clock,
        metrics: KubeletMetrics | None = None,
    ) -> None:
        self._metrics = metrics or KubeletMetrics()
        self._known, self._volumes, self._cgroups, self._clock = known, volumes, cgroups, clock
        self._resources = resources
        self._tasks = KeyedTasks()
        self._cleaned = self._failed = 0
        """Directories since the last sweep."""
        self._pod_logs_dir, self._container_logs_dir = pod_logs_dir, container_logs_dir

    async def run(self) -> None:
        """Sweep every minute until cancelled; start it once the first list of pods is in."""
        try:
            while True:
                await self.sweep()
                await self._clock.sleep(PERIOD_SECONDS)
        finally:
            await self._tasks.close()
            await self._volumes.close()

    async def sweep(self) -> None:
        """Remove what belongs to no pod now."""
        for uid in await asyncio.to_thread(self._volumes.orphans, self._known()):
            self._tasks.begin(f"directory of pod {uid}", partial(self._clean, uid))
        await self._volumes.sweep(self._tasks.begin)
        await self._tasks.settle(WAIT_SECONDS)
        self._metrics.orphan_volumes.set(self._cleaned)
        self._metrics.orphan_volume_errors.set(self._failed)
        self._cleaned = self._failed = 0
        self._resources.keep(self._known())
        await self._resources.retry()
        if self._cgroups is not None:
            for uid, path in (await asyncio.to_thread(self._cgroups.pod_uids)).items():
                if uid not in self._known():
                    await self._cgroups.remove(path)
        for folder in await asyncio.to_thread(self._log_folders):
            if folder.name.startswith(_REMOVED):
                await asyncio.to_thread(_remove, folder)
            elif folder.name.split("_")[2] not in self._known():
                # Renamed without yielding to the event loop: a pod that starts while files are removed has a new directory.
                removed = folder.with_name(f"{_REMOVED}{folder.name}")
                with contextlib.suppress(OSError):
                    folder.rename(removed)
                await asyncio.to_thread(_remove, removed)
        await asyncio.to_thread(self._sweep_links)

    async def _clean(self, uid: str) -> None:
        if uid in self._known():
            return
        log.info("removing the directory of pod %s, which is gone", uid)
        try:
            await self._volumes.clean(uid)
            self._cleaned += 1
        except (CleanupError, OSError) as error:
            self._failed += 1
            log.warning("removing the directory of pod %s: %s", uid, error)

    def _log_folders(self) -> list[Path]:
        try:
            with os.scandir(self._pod_logs_dir) as entries:
                found = [Path(entry.path) for entry in entries if entry.is_dir(follow_symlinks=False)]
        except FileNotFoundError:
            return []
        return [path for path in found if path.name.count("_") == 2]

    def _sweep_links(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self._container_logs_dir):
                # A link whose log is gone; other files are left alone.
                if entry.is_symlink() and not os.path.exists(entry.path):
                    with contextlib.suppress(FileNotFoundError):
                        os.unlink(entry.path)


def _remove(folder: Path) -> None:
    with contextlib.suppress(OSError):
        remove(folder)
