"""Debian packages for tests: of this checkout, and of other versions made from it; files that a package left."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
_CHANGING = re.compile(
    r"/var/lib/(dpkg|apt|systemd)(/|$)|/var/log/(apt|dpkg|alternatives|journal)|/etc/(passwd|group|g?shadow|sub[ug]id)-?$"
    r"|/etc/\.pwd\.lock$|/var/lib/(man-db|misc)(/|$)|/var/cache(/|$)"
)
"""Files of the machine that any package changes."""


def changed(before: set[str], after: set[str]) -> set[str]:
    """Return the paths that are there at one time only, without those that any package changes."""
    return {path for path in before ^ after if not _CHANGING.search(path)}


def build_deb(folder: Path) -> Path:
    """Build the package in an empty folder, without compression."""
    command = [str(ROOT / "scripts/package"), "deb", "--output", str(folder)]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "DPKG_DEB_COMPRESSOR_TYPE": "none"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd="/", env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = folder.iterdir()
    assert done.stdout.splitlines() == [str(built)]
    return built


def repacked(deb: Path, folder: Path, version: str, change: Callable[[Path], None] = lambda _: None) -> Path:
    """Return the same package with another version and a change of its files."""
    tree, made = folder / "tree", folder / f"wherry_{version}.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", str(deb), str(tree)], check=True, timeout=120)
    control = tree / "DEBIAN/control"
    lines = control.read_text().splitlines()
    lines = [f"Version: {version}" if line.startswith("Version: ") else line for line in lines]
    control.write_text("\n".join([*lines, ""]))
    change(tree)
    build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", str(tree), str(made)]
    subprocess.run(build, check=True, capture_output=True, timeout=120)
    shutil.rmtree(tree)
    return made
