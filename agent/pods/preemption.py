"""Chooses the pods to preempt for a critical pod that the node has no room for (pkg/kubelet/preemption). Pure.

Few pods rather than many, and best-effort ones before burstable ones before guaranteed ones: from the guaranteed pods as few as
are needed once all of the other classes were gone, then from the next class. Within a class the pod that covers most of what is
missing comes first; of two that cover as much, the smaller.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.cgroups import qos
from agent.lifecycle import End
from kube import duration
from kube.api import core_v1

MESSAGE = "Preempted in order to admit critical pod"
END = End("Failed", "Preempting", MESSAGE, disruption="Pod was preempted by Kubelet to accommodate a critical pod.")
"""Phase, reason and message of a preempted pod."""
EXCEEDED, EXCEEDED_MESSAGE = (
    "ExceededGracePeriod",
    "Container runtime did not kill the pod within specified grace period.",
)
"""Event of a preempted pod whose resources a critical pod does not wait for any longer (killPodNow)."""
LEAST_WAIT = 10


@dataclass(frozen=True, slots=True)
class Shortage:
    """Too little of one resource for a pod; CPU in millicores."""

    name: str
    requested: int
    used: int
    capacity: int

    @property
    def missing(self) -> int:
        return self.requested - (self.capacity - self.used)

    def __str__(self) -> str:
        return (
            f"Node didn't have enough resource: {self.name}, requested: {self.requested}, used: {self.used}, "
            f"capacity: {self.capacity}"
        )


class NothingToPreempt(Exception):
    """Not even all pods that may be preempted hold enough; the message is upstream's."""


def victims(
    pod: core_v1.Pod, others: Iterable[core_v1.Pod], short: Iterable[Shortage], *, static: Container[str] = ()
) -> list[core_v1.Pod]:
    """Return the pods to end so that a critical pod finds what is missing. Raise NothingToPreempt.

    `static` are the UIDs of this machine's own pods.
    """
    missing = {one.name: one.missing for one in short}
    if not missing:
        return []
    classes: dict[str, list[core_v1.Pod]] = {qos.BEST_EFFORT: [], qos.BURSTABLE: [], qos.GUARANTEED: []}
    for other in others:
        if _may_be_preempted(pod, other, static):
            classes[qos.qos_class(other)].append(other)
    cheap, middle, dear = classes.values()
    if left := _without(missing, [*cheap, *middle, *dear]):
        raise NothingToPreempt(f"error finding a set of pods to preempt: {_nobody(left)}")
    chosen_dear = _choose(dear, _without(missing, [*cheap, *middle]))
    chosen_middle = _choose(middle, _without(missing, [*cheap, *chosen_dear]))
    chosen_cheap = _choose(cheap, _without(missing, [*chosen_middle, *chosen_dear]))
    return [*chosen_cheap, *chosen_middle, *chosen_dear]


def wait_seconds(victim: core_v1.Pod) -> float:
    """Return how long a critical pod waits for a preempted one: one and a half times its grace period (killPodNow)."""
    seconds = (victim.spec.termination_grace_period_seconds or 0) * 1.5
    return seconds if LEAST_WAIT < seconds < duration.GREATEST else LEAST_WAIT


def _may_be_preempted(pod: core_v1.Pod, other: core_v1.Pod, static: Container[str]) -> bool:
    if _critical(pod, static) and not _critical(other, static):
        return True
    return (pod.spec.priority or 0) > (other.spec.priority or 0)


def _critical(pod: core_v1.Pod, static: Container[str]) -> bool:
    return qos.is_critical(pod, static=(pod.metadata.uid or "") in static)


def _choose(pods: Sequence[core_v1.Pod], missing: Mapping[str, int]) -> list[core_v1.Pod]:
    left, chosen = list(pods), []
    while missing:
        best = min(left, key=lambda pod: (_distance(pod, missing), _request(pod, "memory"), _request(pod, "cpu")))
        left.remove(best)
        chosen.append(best)
        missing = _without(missing, [best])
    return chosen


def _distance(pod: core_v1.Pod, missing: Mapping[str, int]) -> float:
    """Return how far the pod alone is from covering what is missing; each resource counts the same."""
    fractions = (max(0, amount - _request(pod, name)) / amount for name, amount in missing.items())
    return sum(fraction * fraction for fraction in fractions)


def _without(missing: Mapping[str, int], pods: Iterable[core_v1.Pod]) -> dict[str, int]:
    gone = list(pods)
    left = {name: amount - sum(_request(pod, name) for pod in gone) for name, amount in missing.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def _request(pod: core_v1.Pod, name: str) -> int:
    return 1 if name == "pods" else qos.pod_request(pod, name)


def _nobody(left: Mapping[str, int]) -> str:
    listed = "".join(f"(res: {name}, q: {amount}), " for name, amount in left.items())
    return f"no set of running pods found to reclaim resources: [{listed}]"
