"""Answers /stats/summary and the /metrics endpoints, from one collector."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

from agent.cgroups.tree import Cgroups
from agent.interfaces import Pods, PodView
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.node.machine import Machine
from agent.probes.probe_metrics import ProbeMetrics
from agent.usage import agent_metrics, cadvisor, resource_metrics, volume_metrics
from agent.usage.cgroup_details import device_name
from agent.usage.collector import Collector
from agent.usage.model import Snapshot
from agent.usage.operations import Operations
from agent.usage.summary import pieces
from cri.errors import CRIError


class UsageEndpoints:
    """Answers each path."""

    def __init__(
        self,
        collector: Collector,
        pods: Pods,
        node_name: str,
        probes: ProbeMetrics,
        operations: Operations | None = None,
        metrics: KubeletMetrics | None = None,
        machine: Machine | None = None,
        cgroups: Cgroups | None = None,
        root_dir: Path | None = None,
        last_shutdown: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0),
    ) -> None:
        """`last_shutdown` returns the times of the last graceful shutdown's start and end, 0 if not known; it blocks."""
        self._last_shutdown = last_shutdown
        self._operations, self._root_dir = operations or Operations(), root_dir
        self._metrics = metrics or KubeletMetrics()
        self._machine, self._cgroups = machine, cgroups
        self._collector = collector
        self._probe_counts = probes
        self._pods = pods
        self._node_name = node_name

    async def summary(self, *, only_cpu_and_memory: bool = False) -> Iterator[bytes]:
        """Return the pieces of /stats/summary. Raise CRIError when the runtime does not answer."""
        return pieces(await self._collector.snapshot(), only_cpu_and_memory=only_cpu_and_memory)

    def texts(self) -> Mapping[str, Callable[[], Awaitable[str]]]:
        """Return the Prometheus texts by path."""
        return {
            "/metrics": self._agent,
            "/metrics/cadvisor": self._cadvisor,
            "/metrics/resource": self._resource,
            "/metrics/probes": self._probes,
        }

    async def _agent(self) -> str:
        shutdown = await asyncio.to_thread(self._last_shutdown)
        own = agent_metrics.state(self._pods, self._node_name) + agent_metrics.text(self._operations, shutdown)
        own += str(self._metrics) + agent_metrics.process()
        with contextlib.suppress(CRIError):  # a runtime that does not answer hides no other metrics
            own += volume_metrics.text(await self._collector.snapshot())
        return own

    async def _cadvisor(self) -> str:
        snapshot = await self._collector.snapshot()
        views = {view.pod.metadata.uid or "": view for view in self._pods.views()}
        return await asyncio.to_thread(self._cadvisor_text, snapshot, views)

    def _cadvisor_text(self, snapshot: Snapshot, views: Mapping[str, PodView]) -> str:
        device = ""
        if self._root_dir is not None:
            number = os.stat(self._root_dir).st_dev
            device = device_name(f"{os.major(number)}:{os.minor(number)}")
        groups = cadvisor.gather(snapshot, views, self._cgroups)
        return cadvisor.text(groups, snapshot, self._machine, time.time(), device)

    async def _resource(self) -> str:
        try:
            return resource_metrics.resource(await self._collector.snapshot())
        except CRIError:
            return resource_metrics.resource(None)

    async def _probes(self) -> str:
        return resource_metrics.probes(self._probe_counts)
