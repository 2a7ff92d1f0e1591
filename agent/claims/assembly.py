"""Builds the claim manager at the first claim, so that its modules are not imported before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from agent.claims.drivers import DRADrivers
from kube.client import Client

if TYPE_CHECKING:
    from agent.claims.manager import ClaimManager


def maker(client: Client, drivers: DRADrivers, root: Path) -> Callable[[], ClaimManager]:
    """Return what makes the node's claim manager. It raises StateError."""

    def make() -> ClaimManager:
        from agent.claims.manager import ClaimManager

        return ClaimManager(client, drivers, root)

    return make
