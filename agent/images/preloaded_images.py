"""Keeps the IDs of images that are known for preloaded ones across restarts of the agent.

Without them, a pull that was under way before a restart could have brought any image of its name, also one that the node had
long before.
"""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from kube.files import write_file

log = logging.getLogger(__name__)


class _File(msgspec.Struct, rename="camel"):
    image_refs: list[str]


class PreloadedImages:
    """The IDs in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.ids: frozenset[str] = frozenset()
        self._written: frozenset[str] | None = None

    def load(self) -> None:
        """Read the last agent's file; without one, or if it is damaged, no image is known."""
        try:
            self.ids = self._written = frozenset(decode_json(self._path, _File).image_refs)
        except FileNotFoundError:
            return
        except (OSError, DamagedFileError) as error:
            log.error("%s: %s; it is written anew", self._path, error)

    def replace(self, ids: frozenset[str]) -> None:
        """Take the IDs of all preloaded images, and write them if they have changed; blocks."""
        self.ids = ids
        if ids == self._written:
            return
        try:
            write_file(self._path, msgspec.json.encode(_File(sorted(ids))), 0o600)
            self._written = ids
        except OSError as error:
            log.warning("writing the preloaded images: %s", error)
