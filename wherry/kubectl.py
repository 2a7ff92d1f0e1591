"""`wherry kubectl`: run kubectl as the cluster's administrator.

The program is the one that scripts/install brought, else the machine's. A kubeconfig that the caller names, by
`--kubeconfig` or by KUBECONFIG, is used instead of the administrator's.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from wherry import admin_kubeconfig
from wherry.errors import WherryError

OWN = Path(sys.prefix, "kubectl/bin/kubectl")
"""Path at which scripts/install and the Debian package put kubectl."""
LOCAL_COMMANDS = frozenset({"completion", "help", "kustomize", "options", "plugin"})
LOCAL_OPTIONS = frozenset({"--client", "--client=true", "--help", "-h"})
"""Commands that send no request to a server."""


def program(own: Path = OWN) -> str:
    """Return the path of kubectl; WherryError where there is none."""
    found = str(own) if os.access(own, os.X_OK) else shutil.which("kubectl")
    if found is None:
        raise WherryError("kubectl is not installed: `scripts/install` brings one of the server's version")
    return found


def environment(arguments: Sequence[str], admin: Path, given: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of kubectl: `given`, with the administrator's kubeconfig where the caller names none.

    Raises WherryError if that kubeconfig is not to be read.
    """
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    if given.get("KUBECONFIG") or any(each == "--kubeconfig" or each.startswith("--kubeconfig=") for each in own):
        return dict(given)
    if not own or own[0] in LOCAL_COMMANDS or LOCAL_OPTIONS.intersection(own):
        return dict(given)
    if not admin.exists():
        raise WherryError(f"{admin} does not exist: name a kubeconfig in KUBECONFIG, or run this on the control plane")
    admin_kubeconfig.require_no_folder(admin)
    if not os.access(admin, os.R_OK):
        raise WherryError(f"{admin} is only for root: run it with sudo, or name a kubeconfig in KUBECONFIG")
    return {**given, "KUBECONFIG": str(admin)}


def run(arguments: Sequence[str], admin: Path) -> None:
    """Become kubectl. Does not return; raises WherryError."""
    path = program()
    variables = environment(arguments, admin, os.environ)
    os.execve(path, ["kubectl", *arguments], variables)  # noqa: S606 - there is no shell
