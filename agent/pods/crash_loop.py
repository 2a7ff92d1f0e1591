"""CrashLoopBackOff: how long a container that keeps ending waits before it is restarted, and what is told of the wait.

Restarts are counted by the container's name and the hash of its spec: a container that was changed starts without delay.
The first wait is ten seconds, each one after it twice as long (backoff.py).
"""

from __future__ import annotations

from collections.abc import Collection

from agent.backoff import BackOff
from agent.lifecycle import container_hash, find_container
from agent.pods.told import ToldPod
from agent.records import ContainerRecord
from agent.status.container import Waiting
from kube import duration
from kube.events import WARNING

REASON = "CrashLoopBackOff"
FIRST_SECONDS = 10.0


class CrashLoopBackOff:
    """The back-off of one pod's containers; `last` is the longest delay in seconds."""

    def __init__(self, pod: ToldPod, last: float) -> None:
        self._pod = pod
        self._back_off = BackOff(FIRST_SECONDS, last)
        self._told: dict[str, str] = {}
        """By container name: the ID of the instance whose end the last event was about."""
        self._ended: dict[str, tuple[str, float]] = {}
        """By container name: the ID of the last instance, and when it ended by the monotonic clock."""

    def ready_at(self, name: str, record: ContainerRecord) -> float:
        """Return from when on (epoch seconds; 0: now) a container whose last instance ended may be restarted.

        How long ago that was is read from the wall clock once: a step of it afterwards changes no wait.
        """
        tools = self._pod.tools
        now, moment = tools.now(), tools.monotonic()
        container_id, ended = self._ended.get(name, ("", 0.0))
        if container_id != record.id:
            ended = moment - max(0.0, now - record.finished_at)
            self._ended[name] = (record.id, ended)
        ready = self._back_off.ready_at(self._key(name), ended)
        return now + ready - moment if ready > moment else 0.0

    def count(self, name: str) -> None:
        """Count a restart of a container that exited: the next one waits longer."""
        record = self._pod.runtime.latest(name)
        if record is not None and record.exited:
            self._back_off.next(self._key(name), self._pod.tools.monotonic())

    def forgive(self, name: str) -> None:
        """Take back that restarts were counted: it was not the container's fault."""
        self._back_off.reset(self._key(name))

    def show(self, backing_off: Collection[str]) -> None:
        """Have the status say which containers wait, and an event that one has begun to."""
        pod = self._pod
        for name in [n for n, waiting in pod.waiting.items() if waiting.reason == REASON and n not in backing_off]:
            del pod.waiting[name]
        metadata = pod.pod.metadata
        for name in backing_off:
            delay = duration.render(self._back_off.delay(self._key(name)))
            where = f"{metadata.name}_{metadata.namespace}({pod.uid})"
            pod.waiting[name] = Waiting(REASON, f"back-off {delay} restarting failed container={name} pod={where}")
            record = pod.runtime.latest(name)
            if record is not None and self._told.get(name) != record.id:
                self._told[name] = record.id
                pod.event(WARNING, "BackOff", f"Back-off restarting failed container {name} in pod {where}", name)

    def _key(self, name: str) -> str:
        found = find_container(self._pod.pod, name)
        return f"{name}_{container_hash(found[0])}" if found else name
