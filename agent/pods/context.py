"""Everything that the steps of one pod work with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agent.lifecycle.resize import PendingResize
from agent.pods.dependencies import PodDependencies
from agent.pods.reporter import PodReporter
from agent.pods.state import PodState
from agent.pods.wakeup import WakeUp
from kube.api import core_v1


@dataclass(frozen=True, slots=True)
class PodContext:
    """One pod's state, who reports it, who wakes its worker, and what the agent offers to all pods."""

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
