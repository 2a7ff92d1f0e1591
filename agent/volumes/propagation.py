"""Enables mount propagation between the machine and containers below the agent's directory.

Volumes with mountPropagation need a source on a shared mount; the runtime refuses Bidirectional without one. systemd makes /
shared, other init systems leave it private. As upstream's MakeRShared, except that it hides nothing that is mounted already.
"""

from __future__ import annotations

import logging
from pathlib import Path

from agent.volumes import mounts

log = logging.getLogger(__name__)


def prepare(folder: Path) -> None:
    """Make the folder if need be, and the mount that it is on a shared one: by a bind mount of its own. Blocks."""
    folder.mkdir(mode=0o750, parents=True, exist_ok=True)
    folder = folder.resolve()
    try:
        if mounts.is_shared(folder):
            return
        points = mounts.mount_points(folder)
        if str(folder) not in points:
            if points:
                log.warning("mounts below %s do not propagate to containers: %s was mounted before", folder, points[0])
                return
            mounts.bind(folder, folder)
        mounts.make_shared(folder)
        log.info("mounted %s as shared", folder)
    except OSError as error:
        log.error("mounts below %s do not propagate to containers: %s", folder, error)
