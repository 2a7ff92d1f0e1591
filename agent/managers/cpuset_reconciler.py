"""Reconciles the cpusets of running containers: updates them when the shared pool of CPUs changes."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Sequence

from agent.interfaces import PodView
from agent.managers import cpuset
from agent.managers.cpu import CpuManager
from cri.errors import CRIError, NotFoundError
from cri.messages import LinuxContainerResources
from cri.runtime_service import RuntimeService

log = logging.getLogger(__name__)


class CpusetReconciler:
    """Records the last CPU set of each running container."""

    def __init__(self, cpu: CpuManager) -> None:
        self._cpu = cpu
        self._written: dict[str, str] = {}

    async def apply(self, runtime: RuntimeService, views: Sequence[PodView]) -> None:
        """Update the cpuset of running containers whose processors have changed."""
        alive = set()
        for view in views:
            for record in view.containers:
                if not record.running:
                    continue
                alive.add(record.id)
                cpus = cpuset.render(self._cpu.affinity(view.pod.metadata.uid or "", record.name))
                if not cpus or self._written.get(record.id) == cpus:
                    continue
                try:
                    with contextlib.suppress(NotFoundError):
                        await runtime.update_container_resources(record.id, LinuxContainerResources(cpuset_cpus=cpus))
                    self._written[record.id] = cpus
                except CRIError as error:
                    log.warning("moving container %s to CPUs %s: %s", record.id[:13], cpus, error)
        for container_id in self._written.keys() - alive:
            del self._written[container_id]
