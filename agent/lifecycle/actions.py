"""Input and output of the pod state machine: Situation and Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.interfaces import ProbeOutcome
from agent.records import ContainerRecord, PodRuntime
from kube.api import core_v1


class Kind(Enum):
    """The pod's list that a container is in."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Situation:
    """The input of a decision. Times are seconds since the epoch."""

    pod: core_v1.Pod
    runtime: PodRuntime
    now: float
    outcomes: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    """By container ID."""
    ready_at: Callable[[str, ContainerRecord], float] = lambda name, record: record.finished_at
    """When a container that exited may be restarted: its CrashLoopBackOff."""
    retry_at: Mapping[str, float] = field(default_factory=dict)
    """By container name: earliest moment after a failure to start; "" is the sandbox."""
    actuated: Mapping[str, core_v1.ResourceRequirements] = field(default_factory=dict)
    """By container ID: the actuated resources, where they are known."""
    resize_pending: bool = False
    """The node cannot resize the pod now."""


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill a running container; `grace` None means the pod's own."""

    id: str
    name: str
    message: str
    probe: str = ""
    grace: int | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Start a container as instance number `restart_count`."""

    name: str
    kind: Kind
    restart_count: int = 0


@dataclass(frozen=True, slots=True)
class Resize:
    """Give a running container the resources of its spec."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class End:
    """The pod has ended on this node: kill what is left and keep the phase."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    disruption: str = ""
    """The message of the pod's DisruptionTarget condition, where the pod goes for the node's sake."""

    @property
    def event_message(self) -> str:
        """The event's message: only the status has a prefix before a rejection's message (kubelet.go: rejectPod)."""
        return self.message.removeprefix(_REJECTED)


_REJECTED = "Pod was rejected: "


def rejection(reason: str, message: str) -> End:
    """Form the end of a pod that the node does not admit."""
    return End("Failed", reason, _REJECTED + message)


@dataclass(frozen=True, slots=True)
class Plan:
    """The actions to take now, in this order, and when to plan again at the latest."""

    end: End | None = None
    stop_sandbox: bool = False
    restart_all: ContainerRecord | None = None
    """The container whose exit demands it: kill and remove every container, this one last, in the same sandbox."""
    new_sandbox: int | None = None
    """The attempt number of the sandbox to make."""
    kill: tuple[Kill, ...] = ()
    resize: tuple[Resize, ...] = ()
    start: tuple[Start, ...] = ()
    backing_off: Mapping[str, float] = field(default_factory=dict)
    """Containers in crash back-off: name to the moment it ends."""
    remove: tuple[str, ...] = ()
    """Dead container instances that are no longer needed."""
    remove_sandboxes: tuple[str, ...] = ()
    """Dead sandboxes before the newest, whose containers are gone."""
    wake_at: float | None = None
