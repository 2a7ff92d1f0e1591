"""The request that a write of the store belongs to: tasks that serve a request have it in their context."""

from __future__ import annotations

from contextvars import ContextVar

import msgspec

from simulation.processes import Process


class Origin(msgspec.Struct, frozen=True):
    """A request as it was sent."""

    method: str
    path: str
    agent: str
    """User-Agent of the client."""
    client: Process | None
    at: float
    """Virtual time at which it was sent."""
    server: str = ""
    """Name of the process that serves it."""

    @property
    def actor(self) -> str:
        """Return a short name of the client: that of a controller's account, of a daemon, or "kubectl"."""
        last = self.agent.rpartition("/")[2]
        return last.rpartition(":")[2] if "/" in self.agent else self.agent


ORIGIN: ContextVar[Origin | None] = ContextVar("origin", default=None)
"""The request that is being served; None for what a process does by itself."""
