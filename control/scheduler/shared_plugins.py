"""Plugins of which one object serves all profiles, with the informers that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control.scheduler.plugins.default_binder import DefaultBinder
from control.scheduler.plugins.dynamic_resources import DynamicResources
from control.scheduler.plugins.volume_binding import VolumeBinding
from control.scheduler.plugins.volume_limits import NodeVolumeLimits, VolumeZone
from control.scheduler.plugins.volume_provisioning import Provisioning
from control.scheduler.plugins.volume_restrictions import VolumeRestrictions
from kube.api import core_v1, resource_v1, storage_v1
from kube.client import Client
from kube.clock import Clock
from kube.informer import Informer
from kube.shared_informers import SharedInformers


class SharedPlugins:
    """The plugins of volumes, devices and binding. `device_args` are the arguments of DynamicResources, if it has any."""

    def __init__(
        self, client: Client, informers: SharedInformers, clock: Clock, device_args: Mapping[str, Any] | None
    ) -> None:
        claims, volumes = informers.of(core_v1.PersistentVolumeClaim), informers.of(core_v1.PersistentVolume)
        classes, csi_nodes = informers.of(storage_v1.StorageClass), informers.of(storage_v1.CSINode)
        drivers, capacities = informers.of(storage_v1.CSIDriver), informers.of(storage_v1.CSIStorageCapacity)
        self.storage: tuple[Informer[Any], ...] = (claims, volumes, classes, csi_nodes, drivers, capacities)
        """Informers of the kinds that decide about volumes."""
        self.attachments = informers.of(storage_v1.VolumeAttachment)
        """Informer of attachments: only a deletion lets a pod fit."""
        self.device_kinds = (
            informers.of(resource_v1.ResourceClaim),
            informers.of(resource_v1.ResourceSlice),
            informers.of(resource_v1.DeviceClass),
        )
        """Informers of the kinds that decide about devices."""
        self.devices = DynamicResources(client, *self.device_kinds, clock, device_args)
        self.plugins: list[Any] = [
            self.devices,
            VolumeRestrictions(claims),
            NodeVolumeLimits(claims, volumes, classes, csi_nodes, self.attachments),
            VolumeBinding(client, claims, volumes, classes, Provisioning(drivers, capacities)),
            VolumeZone(claims, volumes),
            DefaultBinder(client),
        ]
