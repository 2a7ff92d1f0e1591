"""The program that prints the logs of daemons: journalctl under systemd, tail of their files elsewhere."""

from __future__ import annotations

from wherry import daemons, units
from wherry.errors import UsageError, WherryError
from wherry.settings import Settings
from wherry.units import uses_systemd


def command(settings: Settings, daemon: str, *, follow: bool, tail: int) -> list[str]:
    """Return the command line for one daemon, or for all if none is named; raises WherryError."""
    known = [*(["containerd"] if settings.own_containerd else []), *daemons.roles(settings)]
    if daemon and daemon not in known:
        raise UsageError(f"there is no daemon {daemon} on this machine: use {', '.join(known)}")
    chosen = [daemon] if daemon else known
    if uses_systemd(settings):
        named = [part for each in chosen for part in ("--unit", units.UNITS[each])]
        return ["journalctl", "--no-pager", "--lines", str(tail), *(["--follow"] if follow else []), *named]
    files = [settings.layout.logs / f"{each}.log" for each in chosen]
    present = [str(file) for file in files if file.exists()]
    if not present:
        raise WherryError(f"there is no log in {settings.layout.logs} yet: `wherry up` starts the daemons")
    return ["tail", "-n", str(tail), *(["-F"] if follow else []), *present]
