"""Decisions that the scheduling cycle passes to the binding cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from control.scheduler.algorithm import Algorithm
from control.scheduler.framework import Act, Profile
from control.scheduler.podinfo import PodInfo
from control.scheduler.preemption import Victims
from control.scheduler.writing import Writer


@dataclass(frozen=True, slots=True)
class Placed:
    """The pod goes to this node."""

    node: str


@dataclass(frozen=True, slots=True)
class Failed:
    """The pod goes nowhere yet; maybe these victims make room for it."""

    reason: str
    message: str
    victims: Victims | None = None
    hopeless: bool = False
    """Nobody's eviction would help: a nomination from before is void."""
    displaced: tuple[PodInfo, ...] = ()
    """Less important pods that had been nominated for the node."""
    acts: tuple[Act, ...] = ()
    """What plugins want done so that the pod may fit later."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """Nothing is decided before `go_on` has worked out more; then the pod is decided anew."""

    go_on: Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Served:
    """One scheduler name: its plugins, how it chooses, and what it writes."""

    profile: Profile
    algorithm: Algorithm
    writer: Writer


def unreserve(profile: Profile, info: PodInfo) -> None:
    """Have plugins give back what they kept for a pod, the last one first."""
    for plugin in reversed(profile.reserve):
        plugin.unreserve(info)
