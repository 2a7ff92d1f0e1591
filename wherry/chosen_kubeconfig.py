"""The kubeconfigs of commands that act as the user: those of KUBECONFIG, the user's own, or the administrator's."""

from __future__ import annotations

import os
from pathlib import Path

from wherry.errors import WherryError
from wherry.layout import Layout


def paths(prefix: str) -> list[Path]:
    """Return the files; an installation that `prefix` names comes before the user's own. Raise WherryError if there is none."""
    given = [Path(each) for each in os.environ.get("KUBECONFIG", "").split(os.pathsep) if each]
    if given:
        return given
    own, admin = Path("~/.kube/config").expanduser(), Layout(Path(prefix)).admin_kubeconfig
    if own.exists() and not (prefix != "/" and admin.exists()):
        return [own]
    if not os.access(admin, os.R_OK):
        raise WherryError(
            f"{admin} cannot be read, and there is no kubeconfig {own}: name one with --kubeconfig, or in KUBECONFIG"
        )
    return [admin]
