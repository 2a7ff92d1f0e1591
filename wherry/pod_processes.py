"""Processes of this installation's pods, found by their cgroups."""

from __future__ import annotations

from pathlib import Path

from wherry.settings import Settings

POD_CGROUPS = ("kubepods", "kubepods.slice")


def in_pod(process: Path, settings: Settings) -> bool:
    """Return whether a process, of its folder in /proc, is one of the installation's pods. Raise OSError."""
    top = settings.layout.cgroup.rstrip("/")
    pods = tuple(f"{top}/{folder}/".encode() for folder in POD_CGROUPS)
    groups = [line.rpartition(b":")[2] for line in (process / "cgroup").read_bytes().splitlines()]
    return any(group.startswith(pods) for group in groups)
