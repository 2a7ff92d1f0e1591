"""Computes a container's environment, a large one in a thread.

A namespace may have so many ports of Services and keys of ConfigMaps, and a container so many variables, that computing them
would block the event loop for longer than the timeouts of other pods' probes. Environments of one namespace are computed one
after the other.

Files with variables (fileKeyRef) belong to the pod and take up to 1 MiB to parse. Threads read them as they do other work on
volumes: few at a time, fair by namespace, and those that hang delay nobody.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from agent import threads
from agent.pods.dependencies import PodDependencies
from agent.podspec import environment
from agent.podspec.env_files import EnvFile
from agent.podspec.environment import ContainerConfigError, EnvironmentSources
from agent.podspec.security import AnyContainer
from agent.volumes import env_files
from agent.volumes.mounted_volume import MountedVolume
from kube.api import core_v1
from kube.informer import wait_listed

log = logging.getLogger(__name__)

PORTS = 200
"""Maximum number of ports of a namespace's Services for which the event loop computes variables (a millisecond)."""
SERVICES_SECONDS = 10.0
"""Time that a container waits for the first list of Services: it takes a moment when the agent starts."""
VARIABLES = 200
"""Maximum number of variables of a container that the event loop computes."""
LONGEST_ERROR = 512
"""Characters of an error of a file in the log; it contains a path of the pod's author."""


async def make_environment(
    deps: PodDependencies,
    pod: core_v1.Pod,
    container: AnyContainer,
    pod_ips: tuple[str, ...],
    mounted: Mapping[str, MountedVolume],
    *,
    static: bool,
) -> dict[str, str]:
    """Return the container's variables in order. Raise ContainerConfigError, OSError (EAGAIN).

    Services must have been listed, except for a static pod, which runs before there is an API. As with upstream, a pod
    without service links waits as well: it gets the variables of the Service `kubernetes`.
    """
    namespace, node = pod.metadata.namespace or "", deps.node
    if not static and await wait_listed((deps.services,), deps.clock, SERVICES_SECONDS):
        raise ContainerConfigError("services have not yet been read at least once, cannot construct envvars")
    services = environment.linked_services(
        deps.services.list(), namespace, links=pod.spec.enable_service_links is not False
    )

    files = await _read_files(pod, container, mounted)

    def make() -> dict[str, str]:
        around = EnvironmentSources(
            references=deps.references,
            services=environment.service_variables(services),
            pod_ips=pod_ips,
            host_ips=node.host_ips,
            allocatable=node.allocatable,
            files=files,
        )
        return environment.environment(pod, container, around)

    ports = sum(len(service.spec.ports) for service in services)
    if ports <= PORTS and len(container.env) <= VARIABLES and not container.env_from:
        return make()
    owner = threads.Owner(pod.metadata.uid or "", namespace)
    return await threads.call(f"environment in {namespace}", make, owner=owner)


async def _read_files(
    pod: core_v1.Pod, container: AnyContainer, mounted: Mapping[str, MountedVolume]
) -> dict[tuple[str, str], EnvFile]:
    """Read the files that a container's variables name, by volume and path: only those in emptyDir volumes.

    The API server allows no others. Another volume may be a folder of the machine, or the runtime's. Raise
    ContainerConfigError, OSError (EAGAIN).
    """
    own = {volume.name for volume in pod.spec.volumes if volume.empty_dir is not None}
    sources = (variable.value_from.file_key_ref for variable in container.env if variable.value_from is not None)
    wanted: dict[tuple[str, str], set[str]] = {}
    for source in sources:
        if source is not None and source.volume_name in own and source.volume_name in mounted:
            wanted.setdefault((source.volume_name, source.path), set()).add(source.key)
    if not wanted:
        return {}

    paths = {name: volume.path for name, volume in mounted.items() if name in own}
    key = f"environment files of pod {pod.metadata.uid}"
    found = await threads.call(key, env_files.read, paths, wanted, owner=threads.Owner.of(pod))
    errors = sorted({file.error for file in found.values() if file.error})
    if errors:
        shown = errors[0] if len(errors[0]) <= LONGEST_ERROR else f"{errors[0][:LONGEST_ERROR]}..."
        log.warning("pod %s: container %s: %s (%d files)", pod.metadata.uid, container.name, shown, len(errors))
    return found
