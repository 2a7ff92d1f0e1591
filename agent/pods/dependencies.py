"""Dependencies of the pod workers' steps, created once by `agent.assembly` and passed as one value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.cgroups.tree import Cgroups
from agent.config import AgentConfig
from agent.container_manager.manager import ContainerManager
from agent.images.manager import Images
from agent.interfaces import HookRunner, Prober
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.metrics.pod_startup import PodStartupTracker
from agent.node.state import NodeState
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResourceStates
from agent.podspec.userns import UserNamespaces
from agent.runtime import Runtime
from agent.status.writer import StatusWriter
from agent.volumes.manager import VolumeManager
from kube.api import core_v1
from kube.clock import Clock
from kube.events import EventRecorder
from kube.informer import Informer
from kube.tracing.tracer import Tracer


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
    resources: PodResourceStates
    services: Informer[core_v1.Service]
    recorder: EventRecorder
    writer: StatusWriter
    prober: Prober
    hooks: HookRunner
    cgroups: Cgroups
    managers: ContainerManager
    user_namespaces: UserNamespaces
    metrics: KubeletMetrics
    startup: PodStartupTracker
    runtime_handler: Callable[[str], str]
    """Returns the runtime handler of a RuntimeClass; KeyError where it does not exist."""
    tracer: Tracer | None = None
    """None if tracing is not configured."""

    def now(self) -> float:
        """Return the wall clock in epoch seconds."""
        return self.clock.now().timestamp()

    def monotonic(self) -> float:
        """Return the seconds by which waits are measured: no step of the wall clock changes them."""
        return self.clock.monotonic()
