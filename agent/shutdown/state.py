"""Start and end of the last graceful shutdown, stored in a file because they are reported after the reboot."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kube.files import write_file

FILE = "graceful_node_shutdown_state"


def save(path: Path, began: str, ended: str | None) -> None:
    """Write when the last shutdown began and ended, for metrics after the reboot."""
    write_file(path, msgspec.json.encode({"startTime": began, "endTime": ended}), 0o600)


def load(folder: Path) -> tuple[str, str]:
    """Return when the last graceful shutdown began and ended, as RFC 3339 texts; "" where that is not known."""
    try:
        found = msgspec.json.decode((folder / FILE).read_bytes(), type=dict[str, str | None])
    except (OSError, msgspec.DecodeError):
        return "", ""
    return found.get("startTime") or "", found.get("endTime") or ""
