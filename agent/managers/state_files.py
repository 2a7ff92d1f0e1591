"""The managers' checkpoint files, in upstream's formats: JSON with a checksum over Go's printed form of the structure.

An upstream kubelet that takes a node over refuses a file whose checksum is wrong, and the other way round, so the checksum is
computed as upstream does: FNV-1a of the printed structure (pkg/kubelet/checkpointmanager), in which null differs from an empty
list. Files are replaced whole.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agent.files.decoding import DamagedFileError, decode_json
from kube.files import write_file


class StateError(Exception):
    """A checkpoint cannot be used; the message names the file and the reason."""


def checksum(printed: str | bytes, value: int = 0x811C9DC5) -> int:
    """Return FNV-1a (32 bit) of a text, or of one that continues after another's `value`. A megabyte takes 0.1 s."""
    for byte in printed.encode() if isinstance(printed, str) else printed:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return value


NIL = "<nil>"


def go_map(entries: Mapping[Any, str] | None) -> str:
    """Print a Go map whose values are printed already; keys in order."""
    if entries is None:
        return NIL
    return "map[" + " ".join(f"{key}:{entries[key]}" for key in sorted(entries)) + "]"


def go_list(items: Sequence[Any] | None) -> str:
    """Print a Go slice whose items are printed already."""
    if items is None:
        return NIL
    return "[" + " ".join(map(str, items)) + "]"


def read(path: Path) -> dict[str, Any] | None:
    """Read a checkpoint; None if there is none. Raise StateError."""
    try:
        found = decode_json(path, object)
    except FileNotFoundError:
        return None
    except (OSError, DamagedFileError) as error:
        raise StateError(str(error)) from error
    if not isinstance(found, dict):
        raise StateError("checkpoint is corrupted")
    return found


def check(given: object, actual: int) -> None:
    """Compare a checkpoint's checksum with that of its content. Raise StateError."""
    if given != actual:
        raise StateError("checkpoint is corrupted")


@contextlib.contextmanager
def restoring(path: Path, name: str) -> Iterator[None]:
    """Name the file and the remedy in errors that keep a checkpoint from being used. Raise StateError."""
    try:
        yield
    except (StateError, msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise StateError(
            f"could not restore state from checkpoint: {error}, please drain this node and delete the {name} "
            f'checkpoint file "{path}" before restarting Kubelet'
        ) from error


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace a checkpoint atomically. Raise OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o750)
    write_file(path, msgspec.json.encode(content), 0o600)


def remove(path: Path) -> None:
    """Remove a checkpoint."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
