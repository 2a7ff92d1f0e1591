"""Names the volumes of a pod that its containers use: only those are set up (pkg/volume/util: GetPodVolumeNames). Pure."""

from __future__ import annotations

from kube.api import core_v1


def used_volumes(pod: core_v1.Pod) -> frozenset[str]:
    """Return the names of the volumes that any container mounts, has as a device, or reads variables from."""
    spec = pod.spec
    containers: tuple[core_v1.Container | core_v1.EphemeralContainer, ...] = (
        *spec.init_containers,
        *spec.containers,
        *spec.ephemeral_containers,
    )
    names = {mount.name for container in containers for mount in container.volume_mounts}
    names.update(device.name for container in containers for device in container.volume_devices)
    for container in containers:
        for variable in container.env:
            if variable.value_from is not None and variable.value_from.file_key_ref is not None:
                names.add(variable.value_from.file_key_ref.volume_name)
    return frozenset(names)
