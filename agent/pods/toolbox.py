"""What every pod worker uses, made once by `agent.assembly` and passed as one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from agent.cgroups.tree import Cgroups
from agent.config import AgentConfig
from agent.contracts import HookRunner, Prober
from agent.images.manager import Images
from agent.managers.container_manager import ContainerManager
from agent.pods.references import ReferenceStore
from agent.pods.resource_state import PodResources
from agent.podspec.dns import Resolver
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
from kube.quantity import Quantity


@dataclass(slots=True)
class NodeState:
    """Facts of the node that change seldom and that pods show."""

    host_ips: tuple[str, ...] = ()
    allocatable: Mapping[str, Quantity] = field(default_factory=dict)
    memory_capacity: int = 0
    swap_capacity: int = 0
    huge_page_sizes: tuple[str, ...] = ()
    """As 2Mi."""
    resolver: Resolver = field(default_factory=Resolver)
    host_file: str = ""
    runtime: tuple[str, str] = ("", "")
    """The container runtime's name and version."""
    recursive_read_only: Mapping[str, bool] = field(default_factory=dict)
    """Whether a runtime handler makes what is mounted below a mount read-only too."""
    labels: Mapping[str, str] | None = None
    """The node object's labels and taints; None until the API has told them."""
    taints: Sequence[core_v1.Taint] = ()
    pressures: Callable[[], Mapping[str, bool]] = dict
    """The pressure conditions, and whether they hold."""
    supplemental_groups_policy: bool = False
    """The runtime can do without the groups that an image names for its user."""
    app_armor: bool = False
    """The kernel confines processes by AppArmor profiles."""
    shutting_down: bool = False
    user_namespaces: Mapping[str, bool] = field(default_factory=dict)
    """By the name of a runtime handler: whether it can make user namespaces."""


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The agent's parts, as workers see them."""

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
