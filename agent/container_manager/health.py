"""Reports the health of containers' devices in their statuses (KEP-4680), from device plugins and DRA drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from agent.devices.manager import DeviceManager
from kube.api import core_v1

if TYPE_CHECKING:
    from agent.claims.manager import ClaimManager


MOST = 1024
"""Devices of a pod whose health is reported: each entry for a claim has all its devices, in each container that uses it."""


def report(
    devices: DeviceManager, claims: ClaimManager | None, pod: core_v1.Pod, status: core_v1.PodStatus, now: float
) -> None:
    """Put allocatedResourcesStatus into the main containers' statuses; `now` in epoch seconds."""
    claimed = claims.health(pod, now) if claims is not None else None
    containers = {container.name: container for container in pod.spec.containers}
    left = MOST
    for index, shown in enumerate(status.container_statuses):
        container = containers.get(shown.name)
        if container is None:
            continue
        found = _of_plugins(devices, pod.metadata.uid or "", shown.name, left)
        left -= _count(found)
        if claimed is not None:
            of_claims = claimed.of(container, left)
            left -= _count(of_claims)
            found += of_claims
        if found:
            status.container_statuses[index] = msgspec.structs.replace(shown, allocated_resources_status=found)


def _count(found: list[core_v1.ResourceStatus]) -> int:
    return sum(len(each.resources) for each in found)


def _of_plugins(devices: DeviceManager, uid: str, container: str, most: int) -> list[core_v1.ResourceStatus]:
    found = []
    for allocation in devices.of(uid, container):
        if most <= 0:
            break
        resources = [
            core_v1.ResourceHealth(resource_id=name, health=devices.health(allocation.resource, name))
            for name in allocation.ids[:most]
        ]
        most -= len(resources)
        found.append(core_v1.ResourceStatus(name=allocation.resource, resources=resources))
    return found
