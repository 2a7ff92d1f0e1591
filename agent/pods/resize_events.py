"""Records the events of a pod's resizes: deferred or infeasible, started, failed, completed (KEP-1287)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from agent.lifecycle.resize import PendingResize
from kube.api import core_v1
from kube.events import NORMAL, WARNING

RecordEvent = Callable[[str, str, str], None]
"""Takes type, reason and message of an event."""


class ResizeEvents:
    """Records each step of a resize once; a resize is identified by the pod's generation."""

    def __init__(self, record_event: RecordEvent) -> None:
        self._record_event = record_event
        self._last_event: tuple[int | None, str] = (None, "")
        self._last_error: tuple[int | None, str] = (None, "")

    def record(self, pod: core_v1.Pod, *, differs: bool, pending: PendingResize | None, settled: bool) -> None:
        """Record a new step: `differs` where running containers have another size, `settled` where all of them run."""
        if differs and pending is not None:
            self._once(pod, f"Resize{pending.reason}", pending.cause or pending.reason, WARNING, pending.message)
        elif differs:
            self._once(pod, "ResizeStarted", "started", NORMAL)
        elif settled and self._last_event[1] == "ResizeStarted":
            self._once(pod, "ResizeCompleted", "completed", NORMAL)

    def failed(self, pod: core_v1.Pod, error: str) -> None:
        """Record that a resize cannot be actuated, once for each error."""
        step = (pod.metadata.generation, error)
        if step != self._last_error:
            self._last_error = step
            self._record_event(WARNING, "ResizeError", f"Pod resize error: {_summary(pod, error)}")

    def _once(self, pod: core_v1.Pod, reason: str, what: str, kind: str, error: str = "") -> None:
        step = (pod.metadata.generation, reason)
        if step != self._last_event:
            self._last_event = step
            self._record_event(kind, reason, f"Pod resize {what}: {_summary(pod, error)}")


def _summary(pod: core_v1.Pod, error: str) -> str:
    """Return what the pod requests, in the JSON that upstream's events carry."""
    found: dict[str, Any] = {}
    for name, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        if containers:
            found[name] = [
                {"name": c.name, "resources": c.resources or core_v1.ResourceRequirements()} for c in containers
            ]
    found["generation"] = pod.metadata.generation or 0
    if error:
        found["error"] = error
    return msgspec.json.encode(found).decode()
