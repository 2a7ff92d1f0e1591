"""Containers of a simulated pod in CrashLoopBackOff."""

from __future__ import annotations

from collections.abc import Collection

from agent.pods.crash_loop import CrashLoopBackOff
from agent.runtime_records import ContainerRecord, PodRuntime
from agent.status.container import Waiting
from kube.api import core_v1
from kube.clock import Clock
from wherry.testing.nodes.stepped import Happened


class CrashLoops:
    """The restarts of one pod's containers; `longest` is the longest back-off in seconds."""

    def __init__(self, clock: Clock, longest: float) -> None:
        self._back_off = CrashLoopBackOff(clock, longest)
        self.waiting: dict[str, Waiting] = {}
        """Reasons of the containers that wait, by name."""

    def ready_at(self, pod: core_v1.Pod, name: str, record: ContainerRecord) -> float:
        """Return the time (epoch seconds) from which a container that exited may be restarted."""
        return self._back_off.restart_at(pod, name, record)

    def restarted(self, pod: core_v1.Pod, name: str, runtime: PodRuntime) -> None:
        """Count the restart of a container."""
        self._back_off.count(pod, name, runtime.latest(name))
        self.waiting.pop(name, None)

    def show(self, pod: core_v1.Pod, names: Collection[str], runtime: PodRuntime) -> list[Happened]:
        """Let exactly these containers wait; return the events of those that have begun to."""
        self.waiting = {name: self._back_off.waiting(pod, name) for name in names}
        messages = ((name, self._back_off.event(pod, name, runtime.latest(name))) for name in names)
        return [Happened("Warning", "BackOff", message, name) for name, message in messages if message]

    def saved(self) -> dict[str, tuple[float, float]]:
        """Return the delays, for `restore`."""
        return self._back_off.saved()

    def restore(self, saved: dict[str, tuple[float, float]]) -> None:
        """Make the delays those that `saved` returned."""
        self._back_off.restore(saved)
