"""Asks a driver how full a volume is."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from agent.usage.model import Filesystem
from agent.volumes.csi_volume import Volume
from cri.errors import CRIError

if TYPE_CHECKING:
    from agent.csi.driver import CSIClient

log = logging.getLogger(__name__)


async def read(driver: CSIClient, volume: Volume, target: Path, staging: Path, now: float) -> Filesystem | None:
    """Return a volume's usage at a time in epoch seconds; None if the driver does not support that."""
    from agent.csi.messages import Ability, api

    try:
        if not await driver.can(Ability.GET_VOLUME_STATS):
            return None
        staged = "" if volume.ephemeral or not await driver.stages() else str(staging)
        answer = await driver.statistics(volume.handle, str(target), staged)
    except CRIError as error:
        log.info("usage of volume %s: %s", volume.name, error)
        return None
    size = next((use for use in answer.usage if use.unit == api.VolumeUsage.BYTES), api.VolumeUsage())
    files = next((use for use in answer.usage if use.unit == api.VolumeUsage.INODES), api.VolumeUsage())
    return Filesystem(now, size.total, size.available, size.used, files.total, files.available, files.used)
