"""Nodes that run in this process: their liveness is known here, without heartbeats through the API.

Such a node renews its lease for others all the same, but the node lifecycle controller need not wait for that.
"""

from __future__ import annotations

from collections.abc import Callable


class LocalNodes:
    """Names of the nodes of this process that are alive."""

    def __init__(self) -> None:
        self._alive: set[str] = set()
        self._lost: Callable[[str], None] = lambda name: None

    def __contains__(self, name: str) -> bool:
        return name in self._alive

    def add(self, name: str) -> None:
        """Report that a node is alive, until `remove`."""
        self._alive.add(name)

    def remove(self, name: str) -> None:
        """Report that a node is not alive any more; its grace period starts now."""
        if name in self._alive:
            self._alive.remove(name)
            self._lost(name)

    def on_lost(self, handler: Callable[[str], None]) -> None:
        """Call the handler with the name of each node that is not alive any more; a later handler replaces it."""
        self._lost = handler
