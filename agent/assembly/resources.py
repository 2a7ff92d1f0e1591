"""Builds the resource managers with their plugins, and starts them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from agent.assembly.base import Base
from agent.claims.drivers import DRADrivers
from agent.container_manager.manager import ContainerManager
from agent.devices.registration import DevicePluginRegistration
from agent.node import status
from agent.notifier import Notifier
from agent.plugins.registry import PluginRegistry
from agent.podresources.server import PodResourcesServer
from agent.pods.manager import PodManager
from agent.tasks import Tasks
from kube.client import Client

if TYPE_CHECKING:
    from agent.claims.manager import ClaimManager


@dataclass(frozen=True, slots=True)
class Resources:
    """The resource managers: CPUs, memory, devices, claims."""

    managers: ContainerManager
    device_plugins: DevicePluginRegistration
    claim_drivers: DRADrivers
    plugins: PluginRegistry
    changed: Notifier
    """Notified when devices or their health change."""

    def start(self, tasks: Tasks, base: Base, pods: PodManager) -> None:
        tasks.loop("device plugins", self.device_plugins.run)
        pod_resources = PodResourcesServer(base.config.root_dir, self.managers, pods.views)
        tasks.loop("pod resources", pod_resources.run)
        tasks.loop("claims' drivers", self.claim_drivers.run)
        tasks.loop("plugin registry", self.plugins.run)


def build_resources(base: Base) -> Resources:
    """Build the managers; nothing runs yet. Raise ConfigError."""
    config, changed = base.config, Notifier()
    claim_drivers = DRADrivers(base.client, config.node_name, clock=base.clock, health_changed=changed.notify)
    managers = ContainerManager(
        config.root_dir,
        config.managers,
        reserved_cpus=status.reserved_cpus(config),
        clock=base.clock,
        devices_changed=changed.notify,
        claims=partial(_claim_manager, base.client, claim_drivers, config.root_dir),
        looks_up_cdi=base.runtime_status.looks_up_cdi,
    )
    plugins = PluginRegistry(config.plugins_registry_dir, clock=base.clock)
    return Resources(managers, DevicePluginRegistration(managers.devices), claim_drivers, plugins, changed)


def _claim_manager(client: Client, drivers: DRADrivers, root: Path) -> ClaimManager:
    """Return the node's claim manager. Raise StateError."""
    from agent.claims.manager import ClaimManager  # only where a pod has claims: its modules stay in memory

    return ClaimManager(client, drivers, root)
