"""Times attachments: one that its driver does not complete in two minutes is reported, and again every two minutes."""

from __future__ import annotations

from collections.abc import Iterable

from kube.clock import Clock

ATTACH_SECONDS = 120.0
"""Timeout of one try to attach: upstream's csiTimeout."""


class AttachTimeouts:
    """Times at which the current try to attach each volume to a node started."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._started: dict[str, dict[str, float]] = {}
        """By volume, then by node."""

    def check(self, volume: str, nodes: Iterable[str]) -> tuple[list[str], float | None]:
        """Return the nodes to which attaching a volume timed out, and the seconds until the next timeout.

        `nodes` are those that wait for the volume now; for a node in the result a new try starts.
        """
        now, known = self._clock.monotonic(), self._started.pop(volume, {})
        started = {node: known.get(node, now) for node in nodes}
        late = sorted(node for node, since in started.items() if now - since >= ATTACH_SECONDS)
        started |= dict.fromkeys(late, now)
        if not started:
            return [], None
        self._started[volume] = started
        return late, min(started.values()) + ATTACH_SECONDS - now
