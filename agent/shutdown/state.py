"""Start and end of the last graceful shutdown, stored in a file because they are reported after the reboot."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from kube.clock import parse_time
from kube.files import write_file

FILE = "graceful_node_shutdown_state"

_ZERO = datetime(1, 1, 1, tzinfo=UTC)
"""Go's zero time: upstream writes it as the end of a shutdown that was not complete."""


class _State(msgspec.Struct, rename="camel"):
    start_time: str | None = None
    end_time: str | None = None


def save(path: Path, began: str, ended: str | None) -> None:
    """Write when the last shutdown began and ended, for metrics after the reboot."""
    write_file(path, msgspec.json.encode(_State(began, ended)), 0o600)


def load(folder: Path) -> tuple[float, float]:
    """Return when the last graceful shutdown began and ended, in whole seconds since 1970.

    As upstream, 0 is a time that is not known, and both are 0 if the file cannot be read.
    """
    try:
        found = decode_json(folder / FILE, _State)
        return _seconds(found.start_time), _seconds(found.end_time)
    except (OSError, DamagedFileError, ValueError):
        return 0.0, 0.0


def _seconds(text: str | None) -> float:
    moment = parse_time(text) if text else _ZERO
    return 0.0 if moment == _ZERO else float(moment.timestamp() // 1)
