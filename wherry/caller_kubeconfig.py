"""Kubeconfigs that a command takes which works with every cluster: the caller's, else the administrator's of this machine."""

from __future__ import annotations

import os
from pathlib import Path

from wherry import terminal
from wherry.errors import WherryError
from wherry.layout import Layout


def paths(prefix: str) -> list[Path]:
    """Return the caller's kubeconfigs, else the administrator's. Raise WherryError if there is none to read."""
    given = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if given:
        return given
    own, admin = Path("~/.kube/config").expanduser(), Layout(Path(prefix)).admin_kubeconfig
    present, readable = os.path.exists(admin), os.access(admin, os.R_OK)
    if own.exists() and not (prefix != "/" and present):
        if present and not readable:
            terminal.errors.print(f"{own} is used: {admin} is only for root", soft_wrap=True)
        return [own]
    if present and not readable:
        raise WherryError(f"{admin} is only for root: run it with sudo, or name a kubeconfig with --kubeconfig")
    if not readable:
        raise WherryError(
            f"{admin} cannot be read, and there is no kubeconfig {own}: name one with --kubeconfig, or in KUBECONFIG"
        )
    return [admin]
