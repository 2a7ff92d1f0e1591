"""A pod that waits to be scheduled, with its history of attempts."""

from __future__ import annotations

import msgspec

from control.scheduler.podinfo import PodInfo
from kube.tracing.spans import Span


class QueuedPod(msgspec.Struct):
    """A pod that waits to be scheduled, with its history of tries. Times are seconds of the monotonic clock."""

    info: PodInfo
    added: float
    attempts: int = 0
    last_try: float = 0.0
    error: bool = False
    """The last try failed for another reason than lack of a fitting node."""
    rejected_by: frozenset[str] = msgspec.field(default_factory=frozenset)
    span: Span | None = None
    """Span of the attempt that is under way, if tracing is configured."""

    @property
    def key(self) -> str:
        return self.info.key
