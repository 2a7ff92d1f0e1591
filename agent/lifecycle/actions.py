"""What goes into a decision about a pod, and what comes out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from agent.contracts import ProbeOutcome
from agent.records import ContainerRecord, PodRuntime
from kube.api import core_v1


class Kind(Enum):
    """Which of the pod's lists a container stands in."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


@dataclass(frozen=True, slots=True)
class Situation:
    """All that a decision depends on. Times are seconds since the epoch."""

    pod: core_v1.Pod
    runtime: PodRuntime
    now: float
    outcomes: Mapping[str, ProbeOutcome] = field(default_factory=dict)
    """By container ID."""
    ready_at: Callable[[str, ContainerRecord], float] = lambda name, record: record.finished_at
    """From when a container that exited may start again: its crash back-off."""
    retry_at: Mapping[str, float] = field(default_factory=dict)
    """By container name: earliest moment after a failure to start; "" is the sandbox."""
    applied: Mapping[str, core_v1.ResourceRequirements] = field(default_factory=dict)
    """By container ID: the resources that the container was last given, where that is known."""
    hold_resize: bool = False
    """The node cannot hold the pod's new size."""


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
    """The pod has come to an end on this node: kill what is left and keep the phase."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    disruption: str = ""
    """The message of the pod's DisruptionTarget condition, where the pod goes for the node's sake."""

    @property
    def told(self) -> str:
        """What the event says: the status alone has the words before a rejection's reason (kubelet.go: rejectPod)."""
        return self.message.removeprefix(_REJECTED)


_REJECTED = "Pod was rejected: "


def rejection(reason: str, message: str) -> End:
    """Form the end of a pod that the node does not admit."""
    return End("Failed", reason, _REJECTED + message)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order, and when to look again at the latest."""

    end: End | None = None
    stop_sandbox: bool = False
    restart_all: ContainerRecord | None = None
    """The container whose end asks for it: kill and remove every container, this one last, in the same sandbox."""
    new_sandbox: int | None = None
    """The attempt number of the sandbox to make."""
    kill: tuple[Kill, ...] = ()
    resize: tuple[Resize, ...] = ()
    start: tuple[Start, ...] = ()
    backing_off: Mapping[str, float] = field(default_factory=dict)
    """Containers in crash back-off: name to the moment it ends."""
    remove: tuple[str, ...] = ()
    """Dead container instances that nobody needs any more."""
    remove_sandboxes: tuple[str, ...] = ()
    """Dead sandboxes before the newest, whose containers are gone."""
    wake_at: float | None = None
