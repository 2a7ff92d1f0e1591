"""Image volumes: an image's files as a volume, pulled like a container's image and mounted by the runtime itself.

The runtime is given the image instead of a path. Runtimes that do not know that field would silently mount nothing, so they are
recognised by name and version (containerd since 2.1, CRI-O since 1.31). The same holds for a directory of the image, which they
would ignore and mount everything (containerd before 2.2, CRI-O before 1.33).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.images.manager import Images
from agent.podspec.environment import ContainerConfigError
from agent.podspec.security import AnyContainer
from agent.volumes.mounted_volume import MountedVolume
from cri.messages import PodSandboxConfig
from kube.api import core_v1

_SINCE = {"containerd": (2, 1), "cri-o": (1, 31)}
_FOLDERS_SINCE = {"containerd": (2, 2), "cri-o": (1, 33)}


def supported(runtime: str, version: str) -> bool:
    """Return whether a runtime mounts images; an unknown one is assumed to."""
    return _at_least(_SINCE, runtime, version)


def folders_supported(runtime: str, version: str) -> bool:
    """Return whether a runtime mounts a directory of an image."""
    return _at_least(_FOLDERS_SINCE, runtime, version)


def _at_least(first: Mapping[str, tuple[int, int]], runtime: str, version: str) -> bool:
    since = first.get(runtime)
    found = re.match(r"v?([0-9]+)\.([0-9]+)", version)
    return since is None or found is None or (int(found[1]), int(found[2])) >= since


async def pulled(
    images: Images,
    runtime: tuple[str, str],
    pod: core_v1.Pod,
    container: AnyContainer,
    mounted: Mapping[str, MountedVolume],
    field_path: str,
    secrets: Sequence[core_v1.Secret],
    sandbox: PodSandboxConfig,
) -> Mapping[str, MountedVolume]:
    """Return what is mounted, with the images that the container mounts on the node. Raise ImageError, ContainerConfigError."""
    result = dict(mounted)
    in_parts = {mount.name for mount in container.volume_mounts if mount.sub_path or mount.sub_path_expr}
    for name in {mount.name for mount in container.volume_mounts}:
        volume = mounted.get(name)
        if volume is None or volume.image is None:
            continue
        if not supported(*runtime):
            raise ContainerConfigError(
                f'volume "{name}": image volumes are not supported by the container runtime {" ".join(runtime)}'
            )
        if name in in_parts and not folders_supported(*runtime):
            raise ContainerConfigError(
                f'volume "{name}": subPath of an image is not supported by the container runtime {" ".join(runtime)}'
            )
        # Events of the pull are the container's, as upstream does.
        container = core_v1.Container(
            name=container.name, image=volume.image.reference, image_pull_policy=volume.image.pull_policy
        )
        present = await images.ensure(pod, container, field_path, secrets, sandbox)
        result[name] = replace(volume, image_id=present.id)
    return result
