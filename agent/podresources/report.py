"""Forms the messages of podresources/v1 from the managers' assignments: processors, memory, devices and claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.container_manager.manager import ContainerManager
from agent.devices.pool import ANYWHERE
from agent.lifecycle import is_sidecar
from agent.managers.errors import DynamicResourceError
from agent.managers.memory_state import Block
from agent.podresources import messages as m
from kube.api import core_v1

if TYPE_CHECKING:
    from agent.claims.pod_claims import PodClaims


def of_pod(managers: ContainerManager, pod: core_v1.Pod) -> m.PodResources:
    """Return what a pod's sidecars and main containers have."""
    containers = [*filter(is_sidecar, pod.spec.init_containers), *pod.spec.containers]
    pod_claims = managers.claims.of_pod(pod, containers) if managers.claims is not None else None
    return m.PodResources(
        name=pod.metadata.name or "",
        namespace=pod.metadata.namespace or "",
        containers=[_container(managers, pod, container, pod_claims) for container in containers],
    )


def allocatable(managers: ContainerManager) -> m.AllocatableResourcesResponse:
    """Return what can be given to containers at all."""
    devices = []
    for resource, pool in sorted(managers.devices.pools().items()):
        for node, ids in sorted(pool.by_node(pool.healthy).items()):
            devices.append(m.ContainerDevices(resource_name=resource, device_ids=ids, topology=_topology([node])))
    return m.AllocatableResourcesResponse(
        devices=devices,
        cpu_ids=sorted(managers.cpu.allocatable),
        memory=[_memory(block) for block in managers.memory.allocatable()],
    )


def _container(
    managers: ContainerManager, pod: core_v1.Pod, container: core_v1.Container, pod_claims: PodClaims | None
) -> m.ContainerResources:
    uid, name = pod.metadata.uid or "", container.name
    devices = [
        m.ContainerDevices(resource_name=found.resource, device_ids=ids, topology=_topology([node]))
        for found in managers.devices.of(uid, name)
        for node, ids in sorted(found.by_node.items())
    ]
    return m.ContainerResources(
        name=name,
        devices=devices,
        cpu_ids=sorted(managers.cpu.exclusive(uid, name)),
        memory=[_memory(block) for block in managers.memory.blocks(uid, name)],
        dynamic_resources=_claims(managers, container, pod_claims),
    )


def _claims(
    managers: ContainerManager, container: core_v1.Container, pod_claims: PodClaims | None
) -> list[m.DynamicResource]:
    if managers.claims is None or pod_claims is None:
        return []
    try:
        found = managers.claims.devices(pod_claims, container)
    except DynamicResourceError:
        return []  # not made ready yet
    return [
        m.DynamicResource(
            claim_name=claim.name,
            claim_namespace=claim.namespace,
            claim_resources=[
                m.ClaimResource(
                    cdi_devices=[m.CDIDevice(name=name) for name in device.cdi],
                    driver_name=driver,
                    pool_name=device.pool,
                    device_name=device.device,
                    share_id=device.share,
                )
                for driver, devices in sorted(claim.drivers.items())
                for device in devices
            ],
        )
        for claim, _ in found
    ]


def _memory(block: Block) -> m.ContainerMemory:
    return m.ContainerMemory(memory_type=block.type, size=block.size, topology=_topology(block.numa_affinity))


def _topology(nodes: list[int]) -> m.TopologyInfo | None:
    if nodes == [ANYWHERE]:
        return None
    return m.TopologyInfo(nodes=[m.NUMANode(ID=node) for node in nodes])
