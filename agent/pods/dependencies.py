"""The parts of the agent that pods' steps use, made once by `agent.assembly` and passed as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.cgroups.tree import Cgroups
from agent.config import AgentConfig
from agent.contracts import HookRunner, Prober
from agent.images.manager import Images
from agent.managers.container_manager import ContainerManager
from agent.node.state import NodeState
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResources
from agent.podspec.userns import UserNamespaces
from agent.runtime import Runtime
from agent.status.writer import StatusWriter
from agent.usage.observed import Observed
from agent.usage.pod_starts import PodStarts
from agent.volumes.manager import VolumeManager
from kube.api import core_v1
from kube.clock import Clock
from kube.events import EventRecorder
from kube.informer import Informer


@dataclass(frozen=True, slots=True)
class PodDependencies:
    """The agent's parts, as pods' steps see them."""

    config: AgentConfig
    clock: Clock
    node: NodeState
    runtime: Runtime
    images: Images
    volumes: VolumeManager
    references: ReferenceStore
    resources: PodResources
    services: Informer[core_v1.Service]
    recorder: EventRecorder
    writer: StatusWriter
    prober: Prober
    hooks: HookRunner
    cgroups: Cgroups
    managers: ContainerManager
    users: UserNamespaces
    observed: Observed
    starts: PodStarts
    runtime_handler: Callable[[str], str]
    """Turns a RuntimeClass's name into the runtime's handler; KeyError where it does not exist."""

    def now(self) -> float:
        """Return the wall clock in epoch seconds."""
        return self.clock.now().timestamp()

    def monotonic(self) -> float:
        """Return the seconds by which waits are measured: no step of the wall clock changes them."""
        return self.clock.monotonic()
