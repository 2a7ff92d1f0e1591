"""The context of this cluster in the kubeconfig of the user who called sudo, and the commands that `wherry up` ends with.

KUBECONFIG is not followed: sudo drops it by default, `wherry reset` has to find the file again, and it may name the
administrator's own file.
"""

from __future__ import annotations

import os
from pathlib import Path

from kube import kubeconfig
from kube.clock import SYSTEM
from kube.kubeconfig import KubeconfigError
from wherry import home_changes, home_files, kubeconfig_entries, os_errors
from wherry.home_changes import LeftError
from wherry.kubeconfig_entries import Merged
from wherry.settings import Settings
from wherry.terminal import console

OWN_FILE = "~/.kube/wherry"
"""File that messages name beside a kubeconfig that cannot be changed."""


def sudo() -> str:
    """Return the beginning of a command line that needs root, for the person at the terminal."""
    return "sudo " if os.environ.get("SUDO_USER", "root") != "root" else ""


def present(settings: Settings) -> bytes:
    """Return the administrator's kubeconfig, empty if there is none."""
    try:
        return settings.layout.admin_kubeconfig.read_bytes()
    except FileNotFoundError:
        return b""


def update(settings: Settings, former: bytes) -> None:
    """Update the context after the administrator's kubeconfig has changed, if there is one with its former key."""
    if settings.prefix == "/" and former != present(settings):
        _merge(settings, former, add=False)


def offer(settings: Settings, former: bytes = b"") -> None:
    """Add the context to ~/.kube/config or update it, and print the next commands."""
    admin, (target, user) = settings.layout.admin_kubeconfig, home_files.user_kubeconfig()
    found = _merge(settings, former, add=True) if settings.prefix == "/" else None
    heading, first = "The cluster is up. Try:", []
    if found is None:
        first = _commands(str(admin))
    elif found.current:
        heading = f"kubectl is set up for {user.pw_name} in {target}. Try:"
    else:
        heading = f"{target} has the context {found.context}. Try:"
        first = [f"kubectl config use-context {found.context}"]
    if found is not None and os.environ.get("KUBECONFIG", "") not in ("", str(target)):
        first.insert(0, f"export KUBECONFIG={target}")
    console.print(f"\n{heading}", soft_wrap=True)
    lines = [
        *first,
        "kubectl get nodes -o wide",
        "kubectl create deployment web --image=nginx --replicas=3",
        "kubectl rollout status deployment/web",
        "kubectl expose deployment web --port=80",
        """curl "http://$(kubectl get service web -o jsonpath='{.spec.clusterIP}')\"""",
    ]
    console.print("".join(f"\n  {line}" for line in lines), soft_wrap=True)
    root = sudo()
    console.print(
        f"\n{root}wherry status shows what runs, {root}wherry down stops it, {root}wherry reset removes it.",
        soft_wrap=True,
    )


def remove(settings: Settings) -> None:
    """Remove the context, and the file if nothing else is in it."""
    target, user = home_files.user_kubeconfig()
    admin, emptied = present(settings), b""
    if settings.prefix != "/" or not admin:
        return

    def edit(data: bytes) -> bytes:
        nonlocal emptied
        kept = "" if data == admin else kubeconfig_entries.without(_decoded(data), cluster)
        emptied = b"" if kept else data
        return kept.encode() or data

    try:
        cluster = kubeconfig_entries.own(kubeconfig.load(settings.layout.admin_kubeconfig))
        home_changes.change(target, edit, user.pw_uid, user.pw_gid, SYSTEM.now())
        if emptied:
            home_files.remove(target, emptied, user.pw_uid)
    except FileNotFoundError:
        return
    except (LeftError, KubeconfigError, OSError) as error:
        _leave(target, error)


def _merge(settings: Settings, former: bytes, *, add: bool) -> Merged | None:
    """Merge the cluster's entries into the user's kubeconfig; None if it is left as it is, with a sentence."""
    target, user = home_files.user_kubeconfig()
    copies, found = {former, present(settings)} - {b""}, Merged("", "", current=False)

    def edit(data: bytes) -> bytes:
        nonlocal found
        # Earlier versions copied the administrator's file, with other names.
        text = "" if data in copies else _decoded(data)
        found = kubeconfig_entries.merged(text, cluster, add=add or data in copies, former=keys)
        return found.text.encode()

    try:
        cluster = kubeconfig_entries.own(kubeconfig.load(settings.layout.admin_kubeconfig))
        keys = frozenset() if add else kubeconfig_entries.keys(_decoded(former))
        try:
            home_changes.change(target, edit, user.pw_uid, user.pw_gid, SYSTEM.now())
        except FileNotFoundError:
            if add and not home_files.give(target, edit(b""), user.pw_uid, user.pw_gid):
                raise LeftError("its folder cannot be written") from None
    except (LeftError, KubeconfigError, OSError) as error:
        _leave(target, error)
        return None
    return found


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise KubeconfigError("it is no kubeconfig: it is not UTF-8") from None


def _leave(target: Path, error: Exception) -> None:
    reason = os_errors.reason(error) if isinstance(error, OSError) else error
    console.print(f"\n{target} is not changed: {reason}.", soft_wrap=True)


def _commands(admin: str) -> list[str]:
    """Return the commands with which kubectl uses the cluster: the administrator's file is for root alone."""
    if not sudo():
        return [f"export KUBECONFIG={admin}"]
    return [f"(umask 077; sudo wherry kubeconfig >{OWN_FILE})", f"export KUBECONFIG={OWN_FILE}"]
