"""All managers as the pods' workers see them: one admission, what each container is given, one release.

Admission is serial on the node, because every decision depends on what the ones before took. A pod that asks for
nothing that is managed passes without waiting. What was given is written down, so an agent that starts anew finds its
pods as they are; what belongs to pods that are gone is taken back once all pods are known (`run`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path

from agent import qos
from agent.contracts import PodView
from agent.devices.manager import DeviceManager
from agent.environment import ConfigError as RefusedError
from agent.kubelet_configuration import ConfigError
from agent.lifecycle import End
from agent.managers import cpuset, hardware
from agent.managers.cpu import CpuManager
from agent.managers.errors import AdmissionError
from agent.managers.extras import NOTHING, Extras
from agent.managers.hints import Merger
from agent.managers.memory import MemoryManager
from agent.managers.options import ManagerOptions
from agent.managers.state_files import StateError
from agent.managers.topology_manager import TopologyManager
from agent.resize import Hold
from cri.errors import CRIError, NotFoundError
from cri.messages import LinuxContainerResources
from cri.runtime_service import RuntimeService
from kube.api import core_v1
from kube.clock import Clock

log = logging.getLogger(__name__)

SWEEP_SECONDS = 60.0


class ContainerManager:
    """Processors, memory and NUMA placement of one node."""

    def __init__(
        self,
        root: Path,
        options: ManagerOptions,
        *,
        reserved_cpus: int,
        clock: Clock,
        devices_changed: Callable[[], None] = lambda: None,
        sys: Path = Path("/sys"),
    ) -> None:
        """Take over what the last agent wrote below `root`; `reserved_cpus` is a number. Raise ConfigError."""
        self.options, self._clock = options, clock
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()
        self._applied: dict[str, str] = {}
        machine = hardware.Hardware((), (hardware.Node(0),)) if options.idle else hardware.read(sys)
        if len(machine.nodes) > options.most_nodes and options.topology_policy != "none":
            raise ConfigError(f"unsupported on machines with more than {options.most_nodes} NUMA Nodes")
        try:
            self.cpu = CpuManager(
                machine,
                root,
                options.cpu_policy,
                options.cpu_options,
                reserved_count=reserved_cpus,
                reserved=options.reserved_cpus,
                changed=self._moved.set,
            )
            self.memory = MemoryManager(machine, root, options.memory_policy, options.reserved_memory)
            self.devices = DeviceManager(
                root / "device-plugins", machine.node_ids, clock=clock, changed=devices_changed
            )
        except (StateError, AdmissionError, ValueError) as error:
            raise ConfigError(f"failed to start ContainerManager: {error}") from error
        distances = {node.id: node.distances for node in machine.nodes} if options.closest_nodes else None
        merger = Merger(options.topology_policy, machine.node_ids, distances)
        self.machine = machine
        self.topology = TopologyManager(merger, options.topology_scope, [self.cpu, self.memory, self.devices])

    # -- a pod's way through --------------------------------------------------------------------------------------
    async def admit(self, pod: core_v1.Pod, running: Collection[str]) -> End | None:
        """Give the pod's containers what they ask for; return how the pod fails where that cannot be.

        A pod of which containers are `running` had it already: it is never refused.
        """
        if self.options.idle and self.devices.idle:
            return None
        try:
            async with self._lock:
                await self.topology.admit(pod)
        except AdmissionError as error:
            if running:
                log.warning("pod %s/%s runs and is kept: %s", pod.metadata.namespace, pod.metadata.name, error)
                return None
            await self._release(pod.metadata.uid or "")
            return End("Failed", error.reason, f"Pod was rejected: {error.text}")
        return None

    async def extras(self, pod: core_v1.Pod, container: str) -> Extras:
        """Return what a container is given when it is made. Raise environment.ConfigError."""
        uid = pod.metadata.uid or ""
        cpus, mems = cpuset.render(self.cpu.affinity(uid, container)), cpuset.render(self.memory.nodes(uid, container))
        allocations = self.devices.of(uid, container)
        if not allocations:
            return replace(NOTHING, cpus=cpus, mems=mems) if cpus or mems else NOTHING
        from agent.devices.container_options import extras  # only where a container has devices

        for allocation in allocations:
            plugin = self.devices.plugin(allocation.resource)
            if plugin is not None and plugin.options.pre_start:
                try:
                    await plugin.pre_start(allocation.ids)
                except CRIError as error:
                    text = f"device plugin PreStartContainer rpc failed with err: {error.grpc_text()}"
                    raise RefusedError(text) from error
        return replace(extras(allocations), cpus=cpus, mems=mems)

    async def release(self, pod: core_v1.Pod) -> None:
        """Take back what the pod had; nothing of it runs any more."""
        await self._release(pod.metadata.uid or "")

    async def _release(self, uid: str) -> None:
        if uid in self._owners():
            async with self._lock:
                for part in (self.cpu, self.memory, self.devices):
                    await part.release(uid)

    def _owners(self) -> set[str]:
        return self.cpu.owners | self.memory.owners | self.devices.owners

    def refuse_resize(self, pod: core_v1.Pod) -> Hold | None:
        """Return why a running pod cannot be resized at all under these policies (kubelet: canResizePod)."""
        if qos.qos_class(pod) != qos.GUARANTEED:
            return None
        for policy, name in ((self.options.cpu_policy, "CPU"), (self.options.memory_policy, "Memory")):
            if policy.lower() == "static":
                text = f"Resize is infeasible for Guaranteed Pods alongside {name} Manager static policy"
                return Hold("Infeasible", text)
        return None

    # -- keeping it so ------------------------------------------------------------------------------------------------
    async def run(self, runtime: RuntimeService, views: Callable[[], Sequence[PodView]]) -> None:
        """Keep running containers on the processors they may use until cancelled; start it once all pods are known."""
        while True:
            self._moved.clear()
            known = {view.pod.metadata.uid or "" for view in views()}
            for uid in self._owners() - known:
                log.info("taking back what pod %s had, which is gone", uid)
                await self._release(uid)
            self.devices.forget_gone()
            if self.options.cpu_policy == "static":
                await self._place(runtime, views())
            period = self.options.cpu_period if self.options.cpu_policy == "static" else SWEEP_SECONDS
            waits = [
                asyncio.create_task(self._moved.wait(), name="the shared pool changed"),
                asyncio.ensure_future(self._clock.sleep(period)),
            ]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()

    async def _place(self, runtime: RuntimeService, views: Sequence[PodView]) -> None:
        """Move the running containers whose processors are not those that they were last given."""
        alive = set()
        for view in views:
            for record in view.containers:
                if not record.running:
                    continue
                alive.add(record.id)
                cpus = cpuset.render(self.cpu.affinity(view.pod.metadata.uid or "", record.name))
                if not cpus or self._applied.get(record.id) == cpus:
                    continue
                try:
                    with contextlib.suppress(NotFoundError):
                        await runtime.update_container_resources(record.id, LinuxContainerResources(cpuset_cpus=cpus))
                    self._applied[record.id] = cpus
                except CRIError as error:
                    log.warning("moving container %s to processors %s: %s", record.id[:13], cpus, error)
        for container_id in self._applied.keys() - alive:
            del self._applied[container_id]
