"""CrashLoopBackOff: how long a container that keeps ending waits before it is restarted.

Restarts are counted by the container's name and the hash of its spec: a container that was changed starts without delay. The
first wait is ten seconds, each one after it twice as long (backoff.py).
"""

from __future__ import annotations

from agent.backoff import BackOff
from agent.lifecycle import container_hash, find_container
from agent.records import ContainerRecord
from agent.status.container import Waiting
from kube import duration
from kube.api import core_v1
from kube.clock import Clock

REASON = "CrashLoopBackOff"
FIRST_SECONDS = 10.0


class CrashLoopBackOff:
    """The back-off of one pod's containers; `last` is the longest delay in seconds."""

    def __init__(self, clock: Clock, last: float) -> None:
        self._clock = clock
        self._back_off = BackOff(FIRST_SECONDS, last)
        self._reported: dict[str, str] = {}
        """By container name: the ID of the instance whose end the last event was about."""
        self._ended: dict[str, tuple[str, float]] = {}
        """By container name: the ID of the last instance, and when it ended by the monotonic clock."""

    def ready_at(self, pod: core_v1.Pod, name: str, record: ContainerRecord) -> float:
        """Return from when on (epoch seconds; 0: now) a container whose last instance ended may be restarted.

        How long ago that was is read from the wall clock once: a step of it afterwards changes no wait.
        """
        now, monotonic = self._clock.now().timestamp(), self._clock.monotonic()
        container_id, ended = self._ended.get(name, ("", 0.0))
        if container_id != record.id:
            ended = monotonic - max(0.0, now - record.finished_at)
            self._ended[name] = (record.id, ended)
        ready = self._back_off.ready_at(_key(pod, name), ended)
        return now + ready - monotonic if ready > monotonic else 0.0

    def count(self, pod: core_v1.Pod, name: str, record: ContainerRecord | None) -> None:
        """Count a restart of a container that exited: the next one waits longer."""
        if record is not None and record.exited:
            self._back_off.next(_key(pod, name), self._clock.monotonic())

    def reset(self, pod: core_v1.Pod, name: str) -> None:
        """Forget the restarts of a container: they were not its fault."""
        self._back_off.reset(_key(pod, name))

    def waiting(self, pod: core_v1.Pod, name: str) -> Waiting:
        """Return the waiting reason of a container in back-off."""
        delay = duration.render(self._back_off.delay(_key(pod, name)))
        return Waiting(REASON, f"back-off {delay} restarting failed container={name} pod={_full_name(pod)}")

    def event(self, pod: core_v1.Pod, name: str, record: ContainerRecord | None) -> str:
        """Return the message of the event that a container has begun to wait, "" where it was recorded before."""
        if record is None or self._reported.get(name) == record.id:
            return ""
        self._reported[name] = record.id
        return f"Back-off restarting failed container {name} in pod {_full_name(pod)}"


def _full_name(pod: core_v1.Pod) -> str:
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid or ''})"


def _key(pod: core_v1.Pod, name: str) -> str:
    found = find_container(pod, name)
    return f"{name}_{container_hash(found[0])}" if found else name
