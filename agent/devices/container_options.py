"""Merges the answers of device plugins into the options that a container is run with."""

from __future__ import annotations

from collections.abc import Iterable

from agent.devices.checkpoint import Allocation
from agent.managers.run_options import RunOptions
from cri.messages import Device, Mount


def run_options(allocations: Iterable[Allocation]) -> RunOptions:
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
    return RunOptions(
        env=env,
        mounts=tuple(mounts.values()),
        devices=tuple(devices.values()),
        annotations=annotations,
        cdi_devices=tuple(cdi),
    )
