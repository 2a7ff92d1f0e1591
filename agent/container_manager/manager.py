"""The interface of all resource managers for the pods' steps: admission, options of a container, release.

Admission is serial on the node, because every decision depends on the ones before. A pod that requests nothing managed passes
without waiting. Assignments are checkpointed, so that a restarted agent finds them; those of pods that are gone are released
once all pods are known (`run`; claims that drivers prepared: claim_cleanup.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.container_manager import health
from agent.devices.checkpoint import Allocation
from agent.devices.manager import DeviceManager
from agent.interfaces import PodView
from agent.keyed_tasks import KeyedTasks
from agent.kubelet_configuration import ConfigError
from agent.lifecycle import End, rejection
from agent.managers import cpuset, hardware
from agent.managers.cpu import CpuManager
from agent.managers.cpuset_reconciler import CpusetReconciler
from agent.managers.errors import AdmissionError, DynamicResourceError
from agent.managers.hints import Merger
from agent.managers.memory import MemoryManager
from agent.managers.options import ManagerOptions
from agent.managers.run_options import NOTHING, RunOptions
from agent.managers.state_files import StateError
from agent.managers.topology_manager import TopologyManager
from agent.podspec.environment import ContainerConfigError
from agent.podspec.security import AnyContainer
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube.api import core_v1
from kube.clock import Clock

if TYPE_CHECKING:
    from agent.claims.manager import ClaimManager

log = logging.getLogger(__name__)

CLAIMS_FILE = "dra_manager_state"
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
        claims: Callable[[], ClaimManager] | None = None,
        looks_up_cdi: Callable[[], bool] = lambda: True,
        sys: Path = Path("/sys"),
    ) -> None:
        """Read the last agent's checkpoints below `root`; `reserved_cpus` is a number. Raise ConfigError.

        `claims` creates the claim manager with the first claim; `looks_up_cdi` returns whether the runtime resolves CDI names.
        """
        self.options, self._clock = options, clock
        self._make_claims, self._looks_up_cdi = claims, looks_up_cdi
        self._claims: ClaimManager | None = None
        self._lock = asyncio.Lock()
        self._moved = asyncio.Event()
        machine = hardware.Hardware((), (hardware.NUMANode(0),)) if options.idle else hardware.read(sys)
        if len(machine.nodes) > options.most_nodes and options.topology_policy != "none":
            raise ConfigError(f"unsupported on machines with more than {options.most_nodes} NUMA Nodes")
        try:
            if claims is not None and (root / CLAIMS_FILE).exists():
                self._claims = claims()
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
        except (StateError, AdmissionError, ValueError, OSError) as error:
            raise ConfigError(f"failed to start ContainerManager: {error}") from error
        distances = {node.id: node.distances for node in machine.nodes} if options.closest_nodes else None
        merger = Merger(options.topology_policy, machine.node_ids, distances)
        self.machine = machine
        self._cpuset_reconciler = CpusetReconciler(self.cpu)
        self.topology = TopologyManager(merger, options.topology_scope, [self.cpu, self.memory, self.devices])

    async def admit(self, pod: core_v1.Pod, running: Collection[str]) -> End | None:
        """Give the pod's containers what they request; return how the pod fails where that cannot be.

        A pod of which containers are `running` has its resources already: it is never refused.
        """
        if (self.options.idle and self.devices.idle) or not self._asks(pod):
            return None  # beside others: a device plugin that hangs keeps the lock for minutes
        try:
            async with self._lock:
                await self.topology.admit(pod)
        except AdmissionError as error:
            if running:
                log.warning("pod %s/%s runs and is kept: %s", pod.metadata.namespace, pod.metadata.name, error)
                for part in (self.cpu, self.memory, self.devices):
                    await part.checkpoint.try_save_marked()  # what some of its containers were given
                return None
            await self._release(pod.metadata.uid or "")
            return rejection(error.reason, error.text)
        return None

    def _asks(self, pod: core_v1.Pod) -> bool:
        """Return whether a pod requests anything that is managed."""
        return any(
            self.cpu.wanted(pod, container) or self.memory.wanted(pod, container) or self.devices.wanted(container)
            for container in (*pod.spec.init_containers, *pod.spec.containers)
        )

    async def prepare(self, pod: core_v1.Pod) -> None:
        """Have the pod's claims made ready, before its sandbox. Raise DynamicResourceError."""
        if pod.spec.resource_claims or pod.status.extended_resource_claim_status is not None:
            if self._claims is None and self._make_claims is not None:
                self._claims = self._make_claims()
            if self._claims is not None:
                await self._claims.prepare(pod)

    async def run_options(self, pod: core_v1.Pod, container: AnyContainer) -> RunOptions:
        """Return what a container is given when it is made. Raise ContainerConfigError."""
        uid, name = pod.metadata.uid or "", container.name
        found = NOTHING
        if allocations := self.devices.of(uid, name):
            from agent.devices.container_options import run_options  # only where a container has devices

            await self._pre_start(allocations)
            found = run_options(allocations)
        if self._claims is not None and isinstance(container, core_v1.Container):
            try:
                names = (*found.cdi_devices, *self._claims.cdi_devices(pod, container))
            except DynamicResourceError as error:
                raise ContainerConfigError(str(error)) from error
            found = replace(found, cdi_devices=tuple(dict.fromkeys(names)))
        if found.cdi_devices and not self._looks_up_cdi():
            found = await asyncio.to_thread(_looked_up, found)
        cpus, mems = cpuset.render(self.cpu.affinity(uid, name)), cpuset.render(self.memory.nodes(uid, name))
        return replace(found, cpus=cpus, mems=mems) if cpus or mems else found

    def report_health(self, pod: core_v1.Pod, status: core_v1.PodStatus) -> None:
        """Add to the containers' statuses what is known of their devices' health."""
        if pod.metadata.uid in self.device_owners:
            health.report(self.devices, self._claims, pod, status, self._clock.now().timestamp())

    def has_exclusive_cpus(self, uid: str, container: str = "") -> bool:
        """Return whether a container, or any of the pod, has exclusive processors."""
        return bool(self.cpu.exclusive(uid, container)) if container else uid in self.cpu.owners

    async def _pre_start(self, allocations: Sequence[Allocation]) -> None:
        for allocation in allocations:
            plugin = self.devices.plugin(allocation.resource)
            if plugin is not None and plugin.options.pre_start:
                try:
                    await plugin.pre_start(allocation.ids)
                except CRIError as error:
                    text = f"device plugin PreStartContainer rpc failed with err: {error.grpc_text()}"
                    raise ContainerConfigError(text) from error

    async def release(self, pod: core_v1.Pod) -> None:
        """Take back what the pod had; nothing of it runs any more. Raise DynamicResourceError."""
        uid = pod.metadata.uid or ""
        if self._claims is not None:
            await self._claims.unprepare(uid)
        await self._release(uid)

    async def _release(self, uid: str) -> None:
        if uid in self._owners():
            async with self._lock:
                for part in (self.cpu, self.memory, self.devices):
                    await part.release(uid)

    def _owners(self) -> set[str]:
        return self.cpu.owners | self.memory.owners | self.devices.owners

    @property
    def device_owners(self) -> set[str]:
        """The UIDs of the pods that have devices or claims."""
        return self.devices.owners | (self._claims.owners if self._claims is not None else set())

    @property
    def claims(self) -> ClaimManager | None:
        """The claim manager, once there was a claim."""
        return self._claims

    async def run(self, runtime: RuntimeService, views: Callable[[], Sequence[PodView]]) -> None:
        """Keep running containers on the processors they may use until cancelled; start it once all pods are known."""
        tasks = KeyedTasks()
        try:
            while True:
                self._moved.clear()
                # An admission that waits for a device plugin holds the lock.
                tasks.begin("resources of pods that are gone", partial(self._release_gone, views))
                tasks.begin("checkpoints that could not be written", self._retry_checkpoints)
                self.devices.forget_gone()
                if self.options.cpu_policy == "static":
                    await self._cpuset_reconciler.apply(runtime, views())
                await self._moved_within(
                    self.options.cpu_period if self.options.cpu_policy == "static" else SWEEP_SECONDS
                )
        finally:
            await tasks.close()

    async def _retry_checkpoints(self) -> None:
        for part in (self.cpu, self.memory, self.devices, self._claims):
            if part is not None:
                await part.checkpoint.retry()

    async def _moved_within(self, seconds: float) -> None:
        """Wait until the shared pool changed, at most so long."""
        waits = [
            asyncio.create_task(self._moved.wait(), name="the shared pool changed"),
            asyncio.ensure_future(self._clock.sleep(seconds)),
        ]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    async def _release_gone(self, views: Callable[[], Sequence[PodView]]) -> None:
        for uid in self._owners() - {view.pod.metadata.uid or "" for view in views()}:
            log.info("releasing the resources of pod %s, which is gone", uid)
            await self._release(uid)


def _looked_up(run_options: RunOptions) -> RunOptions:
    """Do for the runtime what it does not do itself. Raise ContainerConfigError."""
    from agent.devices import cdi

    try:
        found = cdi.resolve(run_options.cdi_devices)
    except cdi.CDIError as error:
        raise ContainerConfigError(str(error)) from error
    return replace(
        run_options,
        env={**found.env, **run_options.env},
        mounts=(*run_options.mounts, *found.mounts),
        devices=(*run_options.devices, *found.devices),
        cdi_devices=(),
    )
