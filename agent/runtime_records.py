"""The runtime's records of a pod, as plain values that the state machine and the status read.

CRI's messages are converted to these once, at the edge (runtime_messages.py), so that decisions are tested without protobuf and
a record can be made from a call's own return without another call. Times are seconds since the epoch (0.0: never).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

# Labels and annotations by which a kubelet finds its own in the runtime (pkg/kubelet/types/labels.go, kuberuntime/labels.go).
POD_NAME = "io.kubernetes.pod.name"
POD_NAMESPACE = "io.kubernetes.pod.namespace"
POD_UID = "io.kubernetes.pod.uid"
CONTAINER_NAME = "io.kubernetes.container.name"
HASH = "io.kubernetes.container.hash"
RESTART_COUNT = "io.kubernetes.container.restartCount"
MESSAGE_PATH = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY = "io.kubernetes.container.terminationMessagePolicy"
PRE_STOP = "io.kubernetes.container.preStopHandler"
PORTS = "io.kubernetes.container.ports"
CONTAINER_GRACE = "io.kubernetes.container.terminationGracePeriod"
POD_DELETION_GRACE = "io.kubernetes.pod.deletionGracePeriod"
POD_GRACE = "io.kubernetes.pod.terminationGracePeriod"


class State(Enum):
    """A container's state in the runtime."""

    CREATED = "created"
    RUNNING = "running"
    EXITED = "exited"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    """One container instance; `restart_count` is its attempt."""

    id: str
    name: str
    state: State
    restart_count: int = 0
    sandbox_id: str = ""
    image: str = ""
    image_ref: str = ""
    hash: str = ""
    created_at: float = 0.0
    started_at: float = 0.0
    finished_at: float = 0.0
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    log_path: str = ""
    message_file: str = ""
    """The host's path of the termination message."""
    message_policy: str = "File"
    stop_signal: str = ""
    """Stop signal by the API's name, for example SIGRTMIN+1; "" if the runtime does not report it (containerd before 2.1)."""
    mounted_images: frozenset[str] = frozenset()
    """The IDs of images that it has as volumes."""
    deep_read_only: frozenset[str] = frozenset()
    """Paths of mounts that are recursively read-only."""
    user: tuple[int, int, tuple[int, ...]] | None = None
    """User, group and further groups of its first process, where the runtime reports them and they are not too many."""
    grace: int | None = None
    """The pod's terminationGracePeriodSeconds when the container was made, for pods no longer in the API."""

    unread: bool = False
    """Its status could not be read yet: this is what the runtime's list has of it."""

    @property
    def running(self) -> bool:
        return self.state is State.RUNNING

    @property
    def exited(self) -> bool:
        return self.state in (State.EXITED, State.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    """One sandbox; `network` is the namespace mode it was made with."""

    id: str
    ready: bool
    attempt: int = 0
    created_at: float = 0.0
    ips: tuple[str, ...] = ()
    host_network: bool = False


@dataclass(frozen=True, slots=True)
class PodRuntime:
    """The runtime's records of one pod, newest first."""

    sandboxes: tuple[SandboxRecord, ...] = ()
    containers: tuple[ContainerRecord, ...] = ()
    _by_name: dict[str, list[ContainerRecord]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _by_id: dict[str, ContainerRecord] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        for record in self.containers:
            self._by_name.setdefault(record.name, []).append(record)
            self._by_id[record.id] = record

    @classmethod
    def of(cls, sandboxes: Iterable[SandboxRecord], containers: Iterable[ContainerRecord]) -> PodRuntime:
        """Return a pod of records with different IDs, in any order; they are sorted once."""
        return cls(_newest_sandboxes_first(sandboxes), _newest_first(containers))

    @property
    def sandbox(self) -> SandboxRecord | None:
        """The newest sandbox, ready or not."""
        return self.sandboxes[0] if self.sandboxes else None

    def latest(self, name: str) -> ContainerRecord | None:
        """Return the newest instance of a container."""
        return next(iter(self._by_name.get(name, ())), None)

    def previous(self, name: str) -> ContainerRecord | None:
        """Return the newest exited instance before the newest one."""
        older = self._by_name.get(name, [])[1:]
        return next((record for record in older if record.exited), None)

    def find(self, container_id: str) -> ContainerRecord | None:
        return self._by_id.get(container_id)

    @property
    def alive(self) -> tuple[ContainerRecord, ...]:
        """The containers that run."""
        return tuple(record for record in self.containers if record.running)

    def with_container(self, record: ContainerRecord) -> PodRuntime:
        """Return the records with a new container, or the new state of a known one."""
        others = (other for other in self.containers if other.id != record.id)
        return replace(self, containers=_newest_first((record, *others)))

    def without_container(self, container_id: str) -> PodRuntime:
        return replace(self, containers=tuple(c for c in self.containers if c.id != container_id))

    def with_sandbox(self, record: SandboxRecord) -> PodRuntime:
        """Return the records with a new sandbox, or the new state of a known one."""
        others = (other for other in self.sandboxes if other.id != record.id)
        return replace(self, sandboxes=_newest_sandboxes_first((record, *others)))

    def without_sandbox(self, sandbox_id: str) -> PodRuntime:
        return replace(self, sandboxes=tuple(s for s in self.sandboxes if s.id != sandbox_id))


def _newest_sandboxes_first(records: Iterable[SandboxRecord]) -> tuple[SandboxRecord, ...]:
    return tuple(sorted(records, key=lambda s: (s.attempt, s.created_at), reverse=True))


def _newest_first(records: Iterable[ContainerRecord]) -> tuple[ContainerRecord, ...]:
    # The count rises with each instance of a container; times go back when the clock is set.
    return tuple(sorted(records, key=lambda r: (r.restart_count, r.created_at), reverse=True))
