"""CrashLoopBackOff: the delay before a container is restarted that exits repeatedly.

Restarts are counted by the container's name and the hash of its spec: a container that was changed starts without
delay. The first restart is without delay, the second after ten seconds, and the delay doubles each time. The
count starts over for a container that ended more than twice the longest delay after its last counted restart
(`backoff.py: BackOff._expired`).
"""

from __future__ import annotations

from collections.abc import Mapping

from agent.backoff import BackOff
from agent.lifecycle import container_hash, find_container
from agent.runtime_records import ContainerRecord
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

    def restart_at(self, pod: core_v1.Pod, name: str, record: ContainerRecord) -> float:
        """Return the time (epoch seconds; 0: now) from which a container that exited may be restarted.

        The time since the exit is computed once: later steps of the wall clock do not change the delay.
        """
        now, monotonic = self._clock.now().timestamp(), self._clock.monotonic()
        container_id, ended = self._ended.get(name, ("", 0.0))
        if container_id != record.id:
            ended = monotonic - max(0.0, now - record.finished_at)
            self._ended[name] = (record.id, ended)
        ready = self._back_off.ready_at(_key(pod, name), ended)
        return now + ready - monotonic if ready > monotonic else 0.0

    def count(self, pod: core_v1.Pod, name: str, record: ContainerRecord | None) -> None:
        """Count a restart of a container that exited, which increases its delay."""
        if record is not None and record.exited:
            self._back_off.next(_key(pod, name), self._clock.monotonic())

    def forget_restarts(self, pod: core_v1.Pod, name: str) -> None:
        """Reset the count of a container whose restarts were not caused by its own exits."""
        self._back_off.reset(_key(pod, name))

    def saved(self) -> dict[str, tuple[float, float]]:
        """Return the delays of the containers, for `restore`."""
        return self._back_off.saved(self._clock.monotonic())

    def restore(self, saved: Mapping[str, tuple[float, float]]) -> None:
        """Make the delays those that `saved` returned."""
        self._back_off.restore(saved, self._clock.monotonic())

    def waiting(self, pod: core_v1.Pod, name: str) -> Waiting:
        """Return the waiting reason of a container in back-off."""
        delay = duration.render(self._back_off.delay(_key(pod, name)))
        return Waiting(REASON, f"back-off {delay} restarting failed container={name} pod={_full_name(pod)}")

    def event(self, pod: core_v1.Pod, name: str, record: ContainerRecord | None) -> str:
        """Return the message of the event for the start of a back-off, "" if it was emitted already."""
        if record is None or self._reported.get(name) == record.id:
            return ""
        self._reported[name] = record.id
        return f"Back-off restarting failed container {name} in pod {_full_name(pod)}"


def _full_name(pod: core_v1.Pod) -> str:
    return f"{pod.metadata.name}_{pod.metadata.namespace}({pod.metadata.uid or ''})"


def _key(pod: core_v1.Pod, name: str) -> str:
    found = find_container(pod, name)
    return f"{name}_{container_hash(found[0])}" if found else name
