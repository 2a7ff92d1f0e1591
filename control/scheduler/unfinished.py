"""Interruption of an attempt to schedule a pod for work that takes longer than the event loop may be blocked."""

from __future__ import annotations

from collections.abc import Awaitable, Callable


class Unfinished(Exception):
    """More has to be computed for a pod than the event loop may be blocked for: nothing is decided yet.

    `go_on` computes it in slices or in a thread; then the pod is decided anew.
    """

    def __init__(self, go_on: Callable[[], Awaitable[None]]) -> None:
        super().__init__("more is to be worked out")
        self.go_on = go_on
