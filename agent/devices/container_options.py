"""What a container is made with for the devices that it has: what its plugins answered, joined in CRI's terms."""

from __future__ import annotations

from collections.abc import Iterable

from agent.devices.checkpoint import Allocation
from agent.managers.extras import Extras
from cri.messages import Device, Mount


def extras(allocations: Iterable[Allocation]) -> Extras:
    """Join the plugins' answers; of two that set the same, the first one counts."""
    from agent.devices.messages import ContainerAllocateResponse  # only where a container has devices

    env: dict[str, str] = {}
    mounts: dict[str, Mount] = {}
    devices: dict[str, Device] = {}
    annotations: dict[str, str] = {}
    cdi: dict[str, None] = {}
    for allocation in allocations:
        answer = ContainerAllocateResponse.FromString(allocation.response)
        for key, text in answer.envs.items():
            env.setdefault(key, text)
        for mount in answer.mounts:
            made = Mount(container_path=mount.container_path, host_path=mount.host_path, readonly=mount.read_only)
            mounts.setdefault(mount.container_path, made)
        for device in answer.devices:
            found = Device(
                container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
            )
            devices.setdefault(device.container_path, found)
        for key, text in answer.annotations.items():
            annotations.setdefault(key, text)
        cdi.update(dict.fromkeys(device.name for device in answer.cdi_devices))
    return Extras(
        env=env,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations=annotations,
        cdi_devices=tuple(cdi),
    )
