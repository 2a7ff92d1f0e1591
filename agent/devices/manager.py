"""The device manager: keeps the devices that plugins report, and allocates them to containers.

A plugin's devices count as the node's capacity, the healthy ones as allocatable. A container gets devices at its pod's
admission and keeps them over its restarts and the agent's. When a plugin goes, its devices are unhealthy; when it stays away
for five minutes, they are removed (pkg/kubelet/cm/devicemanager/manager.go).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from agent.cgroups import qos
from agent.devices import checkpoint
from agent.devices.allocations import Allocations
from agent.devices.checkpoint import Allocation
from agent.devices.pool import Pool
from agent.managers.checkpoint_writer import CheckpointWriter
from agent.managers.errors import AdmissionError
from agent.managers.hints import Hint, Hints
from cri.channel import PLUGIN_SECONDS
from cri.errors import CRIError
from kube.api import core_v1
from kube.clock import Clock
from kube.quantity import value

if TYPE_CHECKING:
    from agent.devices.plugin import Plugin

log = logging.getLogger(__name__)

MOST_RESOURCES = 256
"""Resources of plugins: the node's status has each, also those that were removed."""
GONE_SECONDS = 300.0
"""Time that a plugin may be away before its resource is removed from the node."""


class DeviceManager:
    """All device plugins of the node; `changed` is called when capacity or health did."""

    def __init__(self, folder: Path, nodes: tuple[int, ...], *, clock: Clock, changed: Callable[[], None]) -> None:
        """Take over what the last agent wrote in the plugins' folder, as far as it can be read."""
        self.folder, self._nodes, self._clock, self._changed = folder, nodes, clock, changed
        self._pools: dict[str, Pool] = {}
        self._plugins: dict[str, Plugin] = {}
        self._gone_at: dict[str, float] = {}
        """Time at which the plugin of a resource disconnected, by the monotonic clock."""
        self._reusable: dict[str, dict[str, set[str]]] = {}
        self.removed: set[str] = set()
        """Resources that were the node's and are no longer."""
        found = checkpoint.restore(folder)
        self.without_checkpoint = found is None
        """There was no checkpoint: the extended resources of the Node object are not this node's."""
        self._allocations = Allocations(found[0] if found else ())
        for resource in found[1] if found else ():
            self._pools[resource] = Pool(resource)
            self._gone_at[resource] = clock.monotonic()
        self._file = checkpoint.CheckpointFile(folder)
        self.checkpoint = CheckpointWriter(checkpoint.FILE, self._prepared)

    # -- plugins ------------------------------------------------------------------------------------------------------
    async def follow(self, plugin: Plugin) -> None:
        """Follow a plugin's devices until it goes away or another one takes its resource over."""
        resource = plugin.resource
        old, self._plugins[resource] = self._plugins.get(resource), plugin
        if old is not None:
            await old.close()
        self._gone_at.pop(resource, None)
        self.removed.discard(resource)
        pool = self._pools.setdefault(resource, Pool(resource))
        log.info("device plugin of %s at %s", resource, plugin.socket)
        try:
            async for devices in plugin.devices():
                if self._plugins.get(resource) is plugin:
                    pool.devices = devices
                    self._changed()
                    await self.checkpoint.try_save()
                await self._clock.sleep(PLUGIN_SECONDS)
        except CRIError as error:
            log.info("device plugin of %s: %s", resource, error)
        finally:
            if self._plugins.get(resource) is plugin:
                del self._plugins[resource]
                pool.lost()
                self._gone_at[resource] = self._clock.monotonic()
                self._changed()
            await plugin.close()

    def forget_gone(self) -> None:
        """Remove resources from the node whose plugins stayed away for too long."""
        now = self._clock.monotonic()
        for resource in [r for r, since in self._gone_at.items() if now - since >= GONE_SECONDS]:
            log.info("the device plugin of %s did not register again: its resource is removed from the node", resource)
            del self._gone_at[resource], self._pools[resource]
            self.removed.add(resource)
            self._changed()

    def capacity(self) -> dict[str, tuple[int, int]]:
        """Return capacity and allocatable by resource."""
        found = {name: (len(pool.devices), len(pool.healthy)) for name, pool in self._pools.items()}
        return {**dict.fromkeys(self.removed, (0, 0)), **found}

    @property
    def idle(self) -> bool:
        """True if there never was a plugin."""
        return not self._pools and not self._allocations

    # -- requests ------------------------------------------------------------------------------------------------
    def wanted(self, container: core_v1.Container) -> dict[str, int]:
        """Return how many devices of each resource a container gets; nothing for most."""
        limits = qos.limits(container.resources)
        if not any("/" in name for name in limits):  # most containers
            return {}
        known = (name for name in sorted(limits) if name in self._pools or self._allocations.has(name))
        return {name: amount for name in known if (amount := value(limits[name]))}

    def _own(self, uid: str, container: str, resource: str) -> list[str]:
        return self._allocations.ids(uid, container, resource)

    def _free(self, resource: str) -> set[str]:
        taken = self._allocations.taken(resource)
        return {name for name in self._pools[resource].healthy if name not in taken}

    # -- hints --------------------------------------------------------------------------------------------------------
    def pod_hints(self, pod: core_v1.Pod) -> Hints:
        """Return hints for the whole pod's devices."""
        uid, containers = pod.metadata.uid or "", (*pod.spec.init_containers, *pod.spec.containers)
        own: dict[str, set[str]] = {}
        for container in containers:
            for name in self.wanted(container):
                own.setdefault(name, set()).update(self._own(uid, container.name, name))
        requests = qos.pod_requests(pod) if own else {}
        return {name: self._hints(name, sorted(ids), requests.get(name, 0), set()) for name, ids in own.items()}

    def container_hints(self, pod: core_v1.Pod, container: core_v1.Container) -> Hints:
        """Return hints for a container's devices."""
        uid = pod.metadata.uid or ""
        reusable = self._reusable.get(uid, {})
        return {
            name: self._hints(name, self._own(uid, container.name, name), need, reusable.get(name, set()))
            for name, need in self.wanted(container).items()
        }

    def _hints(self, resource: str, own: list[str], need: int, reusable: set[str]) -> list[Hint] | None:
        pool = self._pools.get(resource)
        if pool is None or not pool.placed:
            return None
        if own:
            return pool.hints(self._nodes, own, own, need) if len(own) == need else []
        free = self._free(resource) | reusable
        return pool.hints(self._nodes, free, reusable, need) if len(free) >= need else []

    # -- giving and taking back ---------------------------------------------------------------------------------------
    async def allocate(self, pod: core_v1.Pod, container: core_v1.Container, hint: Hint, *, reused: bool) -> None:
        """Give a container its devices, close to the hint's nodes. Raise AdmissionError."""
        uid = pod.metadata.uid or ""
        for resource, need in self.wanted(container).items():
            reusable = self._reusable.get(uid, {}).get(resource, set())
            if not (ids := self._own(uid, container.name, resource)):
                ids = await self._give(uid, container.name, resource, need, reusable, hint)
            # Only now: a pod that is rejected before its first allocation is not released.
            reusable = self._reusable.setdefault(uid, {}).setdefault(resource, set())
            if reused:
                reusable |= set(ids)
            else:
                reusable -= set(ids)

    async def _give(
        self, uid: str, container: str, resource: str, need: int, reusable: set[str], hint: Hint
    ) -> list[str]:
        pool, plugin = self._pools.get(resource), self._plugins.get(resource)
        if pool is None or plugin is None:
            raise AdmissionError(f"cannot allocate unregistered device {resource}")
        taken = sorted(reusable)[:need]
        free = self._free(resource) if len(taken) < need else set[str]()
        pool.check(need - len(taken), free)
        try:
            ids = await self._choose(pool, plugin, need, taken, free, hint) if len(taken) < need else taken
            response = await plugin.allocate(ids)
        except CRIError as error:
            raise AdmissionError(error.grpc_text()) from error
        self._allocations.add(Allocation(uid, container, resource, pool.by_node(ids), response))
        self.checkpoint.mark()
        return ids

    async def save(self) -> None:
        """Write what was allocated. Raise AdmissionError: the next agent would give the devices to another container."""
        try:
            await self.checkpoint.save_marked()
        except OSError as error:
            raise AdmissionError(f'failed to write checkpoint file "{checkpoint.FILE}": {error}') from error

    async def _choose(
        self, pool: Pool, plugin: Plugin, need: int, taken: list[str], free: set[str], hint: Hint
    ) -> list[str]:
        """Pick devices: those that the affinity names, within them those that the plugin prefers. Raise CRIError."""
        aligned, others = pool.sort_by_affinity(free - set(taken), hint.affinity)
        if need - len(taken) >= len(aligned):
            taken = taken + aligned
            source = others
        else:
            source = aligned
        if plugin.options.preferences and len(taken) < need:
            preferred = await plugin.prefer(sorted({*source, *taken}), taken, need)
            known = set(source)
            source = [name for name in preferred if name in known] + source
        chosen = dict.fromkeys([*taken, *source])  # each once, in this order
        return sorted(islice(chosen, need))

    async def release(self, uid: str) -> None:
        """Take back a pod's devices."""
        self._reusable.pop(uid, None)
        if self._allocations.remove(uid):
            self.checkpoint.mark()
            await self.checkpoint.try_save_marked()

    def _prepared(self) -> Callable[[], None]:
        registered = {name: sorted(pool.devices) for name, pool in self._pools.items()}
        return partial(self._file.save, list(self._allocations), registered)

    # -- what others ask ----------------------------------------------------------------------------------------------
    def of(self, uid: str, container: str) -> list[Allocation]:
        """Return what a container has."""
        return self._allocations.of(uid, container)

    def plugin(self, resource: str) -> Plugin | None:
        """Return the plugin of a resource."""
        return self._plugins.get(resource)

    def has_room_for(self, resource: str) -> bool:
        """Return whether a resource is the node's, or was, or may be added."""
        known = {*self._pools, *self.removed}
        return resource in known or len(known) < MOST_RESOURCES

    def health(self, resource: str, device: str) -> str:
        """Return Healthy, Unhealthy or Unknown for a pod's status."""
        pool = self._pools.get(resource)
        found = pool.devices.get(device) if pool else None
        if found is None or resource in self._gone_at:
            return "Unknown"
        return "Healthy" if found.healthy else "Unhealthy"

    def pools(self) -> Mapping[str, Pool]:
        return self._pools

    @property
    def owners(self) -> set[str]:
        """The UIDs of the pods that have something."""
        return self._allocations.owners
