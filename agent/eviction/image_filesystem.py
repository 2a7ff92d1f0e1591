"""Filesystem of images and of containers' writable layers: the agent's, or a separate one with thresholds of its own.

The runtime reports it. If it is separate, a shortage there concerns images and writable layers, and one of the agent's
filesystem logs and volumes (kubelet/eviction/helpers.go: buildSignalToRankFunc, buildSignalToNodeReclaimFuncs).
"""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

from cri.client import Client
from cri.errors import CRIError

log = logging.getLogger(__name__)
ANSWER_SECONDS = 5.0
"""Time that a round waits for a runtime that does not answer: other signals do not need it."""
ALL_PARTS = frozenset({"layers", "logs", "volumes"})
"""Kinds of a pod's disk usage."""
PARTS = {"imagefs": frozenset({"layers"}), "nodefs": frozenset({"logs", "volumes"})}
"""Kinds of usage on each filesystem, if images have one of their own; by the prefix of the eviction signals."""


class ImageFilesystem:
    """Location of images, as the runtime has reported it."""

    def __init__(self, runtime: Client, root_dir: Path) -> None:
        self._runtime, self._root_dir = runtime, root_dir
        self._folder: Path | None = None
        self._separate = False

    @property
    def folder(self) -> Path:
        """The runtime's folder, until it is known the agent's."""
        return self._folder or self._root_dir

    @property
    def separate(self) -> bool:
        """True if it is known to be another than the agent's."""
        return self._separate

    async def locate(self) -> None:
        """Ask the runtime, until it has answered once."""
        if self._folder is not None:
            return
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                found = await self._runtime.images.image_fs_info()
            if found:
                folder = Path(found[0].fs_id.mountpoint)
                self._separate = await asyncio.to_thread(self._is_separate, folder)
                self._folder = folder
        except (CRIError, OSError) as error:  # a timeout is an OSError
            log.warning("the filesystem of images is not known yet: %s", error)

    def parts(self, signal: str) -> frozenset[str]:
        """Return what of a pod's usage is on the filesystem of a signal."""
        return PARTS.get(signal.partition(".")[0], ALL_PARTS) if self._separate else ALL_PARTS

    def has_images(self, signal: str) -> bool:
        """Return whether removing images helps against a shortage."""
        return not self._separate or signal.startswith("imagefs.")

    def _is_separate(self, folder: Path) -> bool:
        return os.stat(folder).st_dev != os.stat(self._root_dir).st_dev
