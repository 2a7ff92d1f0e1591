"""The kubeconfig of commands that act as the user: KUBECONFIG, the user's own, or the administrator's."""

from __future__ import annotations

import os
from pathlib import Path

from wherry.errors import WherryError
from wherry.layout import Layout


def path(prefix: str) -> Path:
    """Return the path; an installation that `prefix` names comes before the user's own. Raise WherryError if there is none."""
    given = os.environ.get("KUBECONFIG", "").split(os.pathsep)[0]
    if given:
        return Path(given)
    own, admin = Path("~/.kube/config").expanduser(), Layout(Path(prefix)).admin_kubeconfig
    if own.exists() and not (prefix != "/" and admin.exists()):
        return own
    if not os.access(admin, os.R_OK):
        raise WherryError("there is no kubeconfig: name one with --kubeconfig, or in KUBECONFIG")
    return admin
