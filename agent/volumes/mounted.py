"""A volume that is set up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Mounted:
    """Where a volume is on the host, and how containers may have it."""

    path: Path
    read_only: bool = False
    device: bool = False
    """The path leads to a block device, which containers get as a device."""
