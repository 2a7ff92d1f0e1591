"""Interfaces between the parts of the agent: the prober, the hook runner, the pods' view for the server.

Each is the smallest interface that its user needs; `agent.assembly` connects them with their implementations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from agent.runtime_records import ContainerRecord, SandboxRecord
from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    """The outcome of the probes of one container instance.

    `started`: the startup probe succeeded, or there is none. `ready`: the readiness probe's outcome, True without
    one. `failed`: "Liveness" or "Startup" once that probe failed often enough that the container has to be killed,
    with the probe's own `grace` in seconds where it has one.
    """

    started: bool = True
    ready: bool = True
    failed: str = ""
    grace: int | None = None


class ProbeTarget(msgspec.Struct, frozen=True):
    """One running container instance of a pod."""

    container: core_v1.Container
    container_id: str
    started_at: float
    restarts_on_failure: bool = True
    """A sidecar or main container: liveness counts. Plain init containers have no probes."""


class Prober(Protocol):
    """Runs the probes of containers; calls the callback that it was created with when an outcome changes."""

    def sync(self, pod: core_v1.Pod, pod_ip: str, targets: Sequence[ProbeTarget]) -> None:
        """Probe exactly these containers of the pod: begin with new ones, stop with the others."""
        ...

    def end(self, uid: str) -> None:
        """Make only readiness probes of a pod from now on: its containers are being stopped."""
        ...

    def stop(self, uid: str) -> None:
        """Stop everything for a pod; what was in progress is cancelled."""
        ...

    def outcome(self, container_id: str) -> ProbeOutcome | None:
        """Return what is known of a container; None if it is not probed."""
        ...


OutcomeChanged = Callable[[str], None]
"""Called by a prober with the pod's UID when an outcome has changed."""


class HookRunner(Protocol):
    """Runs postStart and preStop handlers (exec, httpGet, sleep; tcpSocket is refused by the API)."""

    async def run(
        self,
        pod: core_v1.Pod,
        pod_ip: str,
        container: core_v1.Container,
        container_id: str,
        handler: core_v1.LifecycleHandler,
    ) -> None:
        """Run the handler to its end. Raise HookError with upstream's message."""
        ...


class HookError(Exception):
    """A lifecycle hook failed."""


class PodView(msgspec.Struct, frozen=True):
    """One pod as the server shows it: the API object with the agent's own status, and what runs of it."""

    pod: core_v1.Pod
    containers: tuple[ContainerRecord, ...]
    """Every instance that the runtime has, newest first."""
    sandbox: SandboxRecord | None
    terminating: bool = False
    static: bool = False
    """The pod's source is a manifest of this machine, not the API."""
    released: bool = False
    """Nothing of the pod runs any more, and its resources are released, volumes included."""
    shortened: bool = False
    """The node ends the pod within a grace period of its own, as for an eviction."""

    @property
    def alive(self) -> bool:
        """True if any container runs."""
        return any(c.running for c in self.containers)

    def running(self, name: str) -> ContainerRecord | None:
        return next((c for c in self.containers if c.name == name and c.running), None)

    def latest(self, name: str) -> ContainerRecord | None:
        return next((c for c in self.containers if c.name == name), None)

    def previous(self, name: str) -> ContainerRecord | None:
        older = [c for c in self.containers if c.name == name][1:]
        return next((c for c in older if c.exited), None)


class PodLookup(Protocol):
    """Finds pods of this node, for requests about one of them."""

    def view(self, namespace: str, name: str) -> PodView | None:
        """Return one pod."""
        ...


class Pods(PodLookup, Protocol):
    """The pods of this node, for the server, statistics and eviction."""

    def views(self) -> Sequence[PodView]:
        """Return every pod that the agent runs or is ending."""
        ...

    def by_uid(self) -> Mapping[str, PodView]: ...
