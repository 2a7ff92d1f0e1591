"""Victims of preemption on one node, and their order of importance."""

from __future__ import annotations

import msgspec

from control.scheduler.podinfo import PodInfo

NOT_STARTED = "~"
"""Start time of a pod that has none: later than all others (upstream: GetPodStartTime)."""


class Victims(msgspec.Struct, frozen=True):
    """The pods to evict from one node, most important first."""

    node: str
    pods: tuple[PodInfo, ...]
    violations: int

    @property
    def cost(self) -> tuple[int, int, int, int, str]:
        """Sort key: the least is the best node (upstream: pickOneNodeForPreemption)."""
        top = self.pods[0].priority
        earliest = min((start_time(p) for p in self.pods if p.priority == top), default="")
        inverted = "".join(chr(0x10FFFF - ord(c)) for c in earliest)
        return (self.violations, top, sum(p.priority + 2**31 for p in self.pods), len(self.pods), inverted)


def start_time(pod: PodInfo) -> str:
    """Return the time when a pod was started."""
    return pod.pod.status.start_time or NOT_STARTED


def importance(pod: PodInfo) -> tuple[int, str, str]:
    """Sort key of pods, the most important first; the last element only makes the order unambiguous."""
    return -pod.priority, start_time(pod), pod.key
