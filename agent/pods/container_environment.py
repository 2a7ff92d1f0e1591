"""Makes a container's environment, a large one in a thread.

The Services of a namespace may have so many ports, its ConfigMaps so many keys, and a container so many variables that making
them would block the event loop for longer than other pods' probes may wait. Those of one namespace are made one after another.
"""

from __future__ import annotations

from agent import threads
from agent.pods.dependencies import PodDependencies
from agent.podspec import environment
from agent.podspec.environment import EnvironmentSources
from agent.podspec.security import AnyContainer
from kube.api import core_v1

PORTS = 200
"""Most ports of a namespace's Services for which variables are made on the event loop: a millisecond."""
VARIABLES = 200
"""Most variables of a container that are made on the event loop."""


async def make_environment(
    deps: PodDependencies, pod: core_v1.Pod, container: AnyContainer, pod_ips: tuple[str, ...]
) -> dict[str, str]:
    """Return the container's variables in order. Raise ContainerConfigError, OSError (EAGAIN)."""
    namespace, node = pod.metadata.namespace or "", deps.node
    services = environment.linked_services(deps.services.list(), namespace, pod.spec.enable_service_links is not False)

    def make() -> dict[str, str]:
        around = EnvironmentSources(
            references=deps.references,
            services=environment.service_variables(services),
            pod_ips=pod_ips,
            host_ips=node.host_ips,
            allocatable=node.allocatable,
        )
        return environment.environment(pod, container, around)

    ports = sum(len(service.spec.ports) for service in services)
    if ports <= PORTS and len(container.env) <= VARIABLES and not container.env_from:
        return make()
    owner = threads.Owner(pod.metadata.uid or "", namespace)
    return await threads.call(f"environment in {namespace}", make, owner=owner)
