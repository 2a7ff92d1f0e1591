"""Image volumes: an image's files as a volume, pulled like a container's image and mounted by the runtime itself.

The runtime is given the image instead of a path. Runtimes that do not know that field would mount nothing and say nothing,
so they are told apart by name and version (containerd since 2.1, CRI-O since 1.31).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from agent.images.manager import Images
from agent.podspec.environment import ConfigError
from agent.podspec.security import AnyContainer
from agent.volumes.mounted import Mounted
from cri.messages import PodSandboxConfig
from kube.api import core_v1

_SINCE = {"containerd": (2, 1), "cri-o": (1, 31)}


def supported(runtime: str, version: str) -> bool:
    """Tell whether a runtime mounts images; one that is not known is taken to."""
    since = _SINCE.get(runtime)
    found = re.match(r"v?(\d+)\.(\d+)", version)
    return since is None or found is None or (int(found[1]), int(found[2])) >= since


async def pulled(
    images: Images,
    runtime: tuple[str, str],
    pod: core_v1.Pod,
    container: AnyContainer,
    mounted: Mapping[str, Mounted],
    field_path: str,
    secrets: Sequence[core_v1.Secret],
    sandbox: PodSandboxConfig,
) -> Mapping[str, Mounted]:
    """Return what is mounted, with the images that the container mounts on the node. Raise ImageError, ConfigError."""
    result = dict(mounted)
    for name in {mount.name for mount in container.volume_mounts}:
        volume = mounted.get(name)
        if volume is None or volume.image is None:
            continue
        if not supported(*runtime):
            raise ConfigError(
                f'volume "{name}": image volumes are not supported by the container runtime {" ".join(runtime)}'
            )
        # What is pulled is told of as the container's, as upstream does.
        asked = core_v1.Container(
            name=container.name, image=volume.image.reference, image_pull_policy=volume.image.pull_policy
        )
        present = await images.ensure(pod, asked, field_path, secrets, sandbox)
        result[name] = replace(volume, image_id=present.id)
    return result
