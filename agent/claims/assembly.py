"""Claims' parts put together for the agent's start; what only a claim needs is loaded with the first one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.claims.drivers import Drivers
from kube.client import Client

if TYPE_CHECKING:
    from agent.claims.manager import ClaimManager


def maker(client: Client, drivers: Drivers, root: Path) -> Callable[[], ClaimManager]:
    """Return what makes the node's claim manager. It raises StateError."""

    def make() -> ClaimManager:
        from agent.claims.manager import ClaimManager

        return ClaimManager(client, drivers, root)

    return make
