"""Other installations in this machine's network namespace, which have rules, routes and links under the same names.

They are found by their processes: daemons that run, and the shims of pods, which run on while the daemons are stopped. Only
those of root outside of this installation's pods count: accounts and pods can choose the command lines of their processes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from kube import process_files
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.pod_processes import in_pod
from wherry.settings import Settings

_PROC = Path("/proc")
_ROLES = frozenset({b"server", b"agent", b"proxy", b"dns"})
_STARTERS = frozenset({b"wherry.roles", b"wherry.main", b"wherry"})
"""Module, or name of the program, before the role in the command line of a daemon."""
_SHIM = b"containerd-shim-runc-v2"


def require_none(settings: Settings) -> None:
    """Raise WherryError if another installation has processes in this network namespace."""
    if found := prefixes(settings):
        other = found[0]
        raise WherryError(
            f"the installation {other} runs in this network namespace and would lose its rules, routes and links: "
            f"nothing was removed; reset that one first (--prefix {other}), or delete {settings.prefix} if it is a copy"
        )


def prefixes(settings: Settings) -> list[str]:
    """Return the prefixes of other installations with processes in this network namespace."""
    own = Path(settings.prefix).resolve()
    with contextlib.suppress(OSError):
        namespace = os.readlink(_PROC / "self/ns/net")
        return sorted({each for each in _in_use(namespace, settings) if Path(each).resolve() != own})
    return []


def _in_use(namespace: str, settings: Settings) -> Iterator[str]:
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):
            if os.readlink(folder / "ns/net") != namespace or {*process_files.users(folder)} != {b"0"}:
                continue
            if in_pod(folder, settings):
                continue
            prefix = _prefix(process_files.command_line(folder).split(b"\0")[:-1])
            if prefix:
                yield os.fsdecode(prefix)


def _prefix(arguments: list[bytes]) -> bytes:
    """Return the prefix of the installation whose daemon or shim has these arguments; empty for other processes."""
    if any(os.path.basename(a) in _STARTERS and b in _ROLES for a, b in pairwise(arguments)):
        return _value(arguments, b"--prefix") or b"/"
    if arguments and arguments[0].endswith(_SHIM):
        socket, own = _value(arguments, b"-address"), bytes(Layout(Path("/")).containerd_socket)
        return (socket.removesuffix(own) or b"/") if socket.endswith(own) else b""
    return b""


def _value(arguments: list[bytes], option: bytes) -> bytes:
    return dict(pairwise(arguments)).get(option, b"")
