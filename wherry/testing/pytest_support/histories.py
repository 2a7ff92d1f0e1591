"""Histories of failed tests, in files of a folder."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from wherry.testing.cluster import Cluster

LONGEST_NAME = 150


def save(cluster: Cluster, folder: Path, test: str) -> str:
    """Write the history of a test to a file; return a text for its report."""
    from wherry.testing.errors import ClusterError

    path = folder / f"{re.sub(r'[^A-Za-z0-9_.-]+', '-', test)[-LONGEST_NAME:]}.wherry"
    try:
        history = cluster.history(test)
        history.save(path)
    except ClusterError as error:
        return f"no history: {error}"
    left = f" (without the first {history.dropped})" if history.dropped else ""
    return f"history with {len(history.changes)} changes{left}; wherry dev --replay {path}"
