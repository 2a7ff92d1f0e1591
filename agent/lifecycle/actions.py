"""Input and output of the pod state machine: Situation and Plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

import msgspec

from agent.interfaces import ProbeOutcome
from agent.runtime_records import ContainerRecord, PodRuntime
from kube.api import core_v1


class Kind(Enum):
    """The pod's list that a container is in."""

    INIT = "initContainers"
    MAIN = "containers"
    EPHEMERAL = "ephemeralContainers"


class Situation(msgspec.Struct, frozen=True):
    """The input of a decision. Times are seconds since the epoch."""

    pod: core_v1.Pod
    """In the size that the node has allocated."""
    runtime: PodRuntime
    now: float
    outcomes: Mapping[str, ProbeOutcome] = msgspec.field(default_factory=dict)
    """By container ID."""
    restart_at: Callable[[str, ContainerRecord], float] = lambda name, record: record.finished_at
    """End of the crash back-off of a container that exited."""
    retry_at: Mapping[str, float] = msgspec.field(default_factory=dict)
    """By container name: end of the back-off after a failed attempt to start (image, configuration); "" is the sandbox."""
    actuated: Mapping[str, core_v1.ResourceRequirements] = msgspec.field(default_factory=dict)
    """By container ID: the actuated resources, where they are known."""


class Kill(msgspec.Struct, frozen=True):
    """Kill a running container; `grace` None means the pod's own."""

    id: str
    name: str
    message: str
    probe: str = ""
    grace: int | None = None
    for_resize: bool = False
    """The container starts again in another size."""


class Start(msgspec.Struct, frozen=True):
    """Start a container as instance number `restart_count`."""

    name: str
    kind: Kind
    restart_count: int = 0


class Resize(msgspec.Struct, frozen=True):
    """Give a running container the resources of its spec."""

    id: str
    name: str


class End(msgspec.Struct, frozen=True):
    """The pod has ended on this node: kill what is left and keep the phase."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    disruption: str = ""
    """Message of the pod's DisruptionTarget condition if the node terminates the pod."""

    @property
    def event_message(self) -> str:
        """The event's message: only the status has a prefix before a rejection's message (kubelet.go: rejectPod)."""
        return self.message.removeprefix(_REJECTED)


_REJECTED = "Pod was rejected: "


def rejection(reason: str, message: str) -> End:
    """Return the End of a pod that the node does not admit."""
    return End("Failed", reason, _REJECTED + message)


class Plan(msgspec.Struct, frozen=True):
    """The actions to take now, in this order, and when to plan again at the latest."""

    end: End | None = None
    stop_sandbox: bool = False
    restart_all: ContainerRecord | None = None
    """The container whose exit restarts all containers: kill and remove each, this one last, and keep the sandbox."""
    new_sandbox: int | None = None
    """Attempt number of the sandbox to create."""
    kill: tuple[Kill, ...] = ()
    resize: tuple[Resize, ...] = ()
    start: tuple[Start, ...] = ()
    backing_off: Mapping[str, float] = msgspec.field(default_factory=dict)
    """Containers in CrashLoopBackOff: name to the end of the back-off."""
    remove: tuple[str, ...] = ()
    """Dead container instances that are no longer needed."""
    remove_sandboxes: tuple[str, ...] = ()
    """Dead sandboxes before the newest, whose containers are gone."""
    wake_at: float | None = None
