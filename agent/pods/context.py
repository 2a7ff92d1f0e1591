"""The context that the steps of one pod share: state, dependencies, reporter, wake-up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.lifecycle import End
from agent.lifecycle.resize import PendingResize
from agent.pods.dependencies import PodDependencies
from agent.pods.reporter import PodReporter
from agent.pods.state import PodState
from agent.pods.wakeup import WakeUp
from kube.api import core_v1
from kube.events import WARNING


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod's state, reporter and wake-up, and the dependencies that all pods share."""

    state: PodState
    deps: PodDependencies
    reporter: PodReporter
    wakeup: WakeUp
    pending_resize: Callable[[core_v1.Pod], PendingResize | None]
    """Decides why the node cannot resize the pod now; None if it can."""
    size_changed: Callable[[], None]
    """Called when another size was allocated to the pod."""
    resources_released: Callable[[], None]
    """Called when the pod's resources on the node are released."""


def reject(ctx: PodContext, end: End) -> None:
    """Reject a pod that was admitted before: it fails before it starts; its termination removes what was set up."""
    termination = ctx.state.termination
    termination.rejection = termination.cause = end
    ctx.reporter.event(WARNING, end.reason, end.event_message)
    ctx.wakeup.request_sync()
