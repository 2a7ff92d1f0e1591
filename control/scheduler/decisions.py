"""Decisions that the scheduling cycle passes to the binding cycle."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from control.scheduler.algorithm import Algorithm
from control.scheduler.framework import PostFilterAction, Profile
from control.scheduler.podinfo import PodInfo
from control.scheduler.victims import Victims
from control.scheduler.writing import Writer


class Placed(msgspec.Struct, frozen=True):
    """The pod is assigned to this node."""

    node: str


class Failed(msgspec.Struct, frozen=True):
    """The pod is unschedulable; evicting the victims, if any, may change that."""

    reason: str
    message: str
    victims: Victims | None = None
    hopeless: bool = False
    """No eviction would help: an earlier nomination is cleared."""
    displaced: tuple[PodInfo, ...] = ()
    """Pods of lower priority that were nominated for the node."""
    actions: tuple[PostFilterAction, ...] = ()
    """Actions of PostFilter plugins that may make the pod schedulable."""


class Deferred(msgspec.Struct, frozen=True):
    """The decision waits for the computation of `go_on`; then the scheduling cycle is repeated."""

    go_on: Callable[[], Awaitable[None]]


class ProfileScheduler(msgspec.Struct, frozen=True):
    """Scheduling of one scheduler name: its profile, its algorithm, and the writer of its results."""

    profile: Profile
    algorithm: Algorithm
    writer: Writer


def unreserve(profile: Profile, info: PodInfo) -> None:
    """Run Unreserve of the plugins in reverse order."""
    for plugin in reversed(profile.reserve):
        plugin.unreserve(info)
