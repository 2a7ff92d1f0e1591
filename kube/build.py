"""Build information: the API's version, and the commit and date of the running code.

`scripts/install` writes `build.json` beside this file into the copy that a machine runs. A source tree that runs as it
stands has no such file: there the last line of git's reflog of HEAD has commit and time, and the tree counts as
"dirty", since what is edited is what runs. Where there is neither (an unpacked archive), the package's version and the
age of this file stand in.
"""

from __future__ import annotations

import functools
import json
import platform
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kube.clock import format_time

MAJOR, MINOR = "1", "36"
GIT_VERSION = "v1.36.2+wherry"
"""Version of the served API, for clients."""
_HERE = Path(__file__)
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
"""Of the machine, in Go's words."""


class Build(msgspec.Struct, frozen=True):
    """`date` is RFC 3339; `tree_state` is clean, dirty or archive, as upstream's."""

    commit: str
    date: str
    tree_state: str


@functools.cache
def build() -> Build:
    """Return what runs here; nothing of it is ever empty."""
    return _recorded(_HERE.with_name("build.json")) or _source_tree(_HERE.parents[1]) or _archive()


def user_agent(command: str, part: str = "") -> str:
    """Return the User-Agent of a daemon or of a part of it, in client-go's form: what is before the first slash is the
    field manager of its writes."""
    found = f"{command}/{GIT_VERSION} (linux/{ARCHITECTURE}) kubernetes/{build().commit[:7]}"
    return f"{found}/{part}" if part else found


def _recorded(path: Path) -> Build | None:
    try:
        found = json.loads(path.read_text())
        return Build(found["gitCommit"], found["buildDate"], found["gitTreeState"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _source_tree(root: Path) -> Build | None:
    """Read the newest line of .git/logs/HEAD: old commit, new commit, who <address> seconds zone, a tab, what."""
    git = root / ".git"
    try:
        if git.is_file():  # a further work tree: its folder is elsewhere
            git = root / git.read_text().removeprefix("gitdir:").strip()
        line = (git / "logs" / "HEAD").read_text().splitlines()[-1]
        fields = line.partition("\t")[0].split()
        return Build(fields[1], format_time(datetime.fromtimestamp(int(fields[-2]), UTC)), "dirty")
    except (OSError, ValueError, IndexError):
        return None


def _archive() -> Build:
    import importlib.metadata

    try:
        version = importlib.metadata.version("wherry")
    except importlib.metadata.PackageNotFoundError:
        version = GIT_VERSION
    return Build(version, format_time(datetime.fromtimestamp(_HERE.stat().st_mtime, UTC)), "archive")
