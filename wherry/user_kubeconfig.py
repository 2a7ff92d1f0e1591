"""The context of this cluster in the kubeconfigs of users, and the commands that `wherry up` ends with.

`wherry up` adds it to that of the user who called sudo; `wherry certs renew` and `wherry reset` change all that are known
(kubeconfig_holders.py). KUBECONFIG is not followed: sudo drops it by default, `wherry reset` has to find the file again, and it
may name the administrator's own file.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from kube import kubeconfig
from kube.clock import SYSTEM
from kube.kubeconfig import KubeconfigError
from wherry import admin_kubeconfig, home_changes, home_files, kubeconfig_entries, kubeconfig_holders, os_errors
from wherry.home_changes import LeftError
from wherry.kubeconfig_entries import Merged, Own
from wherry.settings import Settings
from wherry.terminal import console

OWN_FILE = "~/.kube/wherry"
"""File that messages name beside a kubeconfig that cannot be changed."""


def sudo() -> str:
    """Return the beginning of a command line that needs root, for the person at the terminal."""
    return "sudo " if os.environ.get("SUDO_USER", "root") != "root" else ""


def present(settings: Settings) -> bytes:
    """Return the administrator's kubeconfig, empty if there is none. Raise WherryError if a folder has its name."""
    try:
        return admin_kubeconfig.read(settings.layout.admin_kubeconfig)
    except FileNotFoundError:
        return b""


def update(settings: Settings, former: bytes, done: Path | None = None) -> None:
    """Update the contexts in files with the former key after the administrator's kubeconfig changed; one may be done."""
    if settings.prefix == "/" and former != present(settings):
        for target, user in kubeconfig_holders.all_of(settings):
            if target != done:
                _merge(settings, former, target, user, add=False)


def offer(settings: Settings, former: bytes = b"") -> None:
    """Add the context to ~/.kube/config or update it, and print the next commands."""
    admin, (target, user) = settings.layout.admin_kubeconfig, home_files.user_kubeconfig()
    found = _give(settings, former, target, user) if settings.prefix == "/" else None
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


def _give(settings: Settings, former: bytes, target: Path, user: pwd.struct_passwd) -> Merged | None:
    """Merge the context into the caller's kubeconfig, and update those of others if certificates were renewed."""
    found = _merge(settings, former, target, user, add=True)
    if found is not None:
        kubeconfig_holders.record(settings, user)
    if former:
        update(settings, former, target)
    return found


def remove(settings: Settings) -> None:
    """Remove the contexts, the files in which nothing else is, and copies of them; copies with other entries are named."""
    if settings.prefix != "/" or not present(settings):
        return
    try:
        cluster = kubeconfig_entries.own(kubeconfig.load(settings.layout.admin_kubeconfig))
    except KubeconfigError as error:
        _leave(home_files.user_kubeconfig()[0], error)
        return
    for target, user in kubeconfig_holders.all_of(settings):
        try:
            _remove_from(target, user, cluster, present(settings))
        except FileNotFoundError:
            pass
        except (LeftError, KubeconfigError, OSError) as error:
            _leave(target, error)
        _remove_copies(target, user, cluster)


def _remove_from(target: Path, user: pwd.struct_passwd, cluster: Own, admin: bytes) -> None:
    emptied = b""

    def edit(data: bytes) -> bytes:
        nonlocal emptied
        kept = "" if data == admin else kubeconfig_entries.without(_decoded(data), cluster)
        emptied = b"" if kept else data
        return kept.encode() or data

    home_changes.change(target, edit, user.pw_uid, user.pw_gid, SYSTEM.now())
    if emptied:
        home_files.remove(target, emptied, user.pw_uid)


def _remove_copies(target: Path, user: pwd.struct_passwd, cluster: Own) -> None:
    """Remove the copies of a kubeconfig that hold nothing but this cluster's entries, and name the others."""
    try:
        for path, data in home_changes.copies(target, user.pw_uid).items():
            if _only_of(cluster, data):
                home_files.remove(path, data, user.pw_uid)
            else:
                console.print(f"\n{path} stays: it is {target} before the last change of Wherry's.", soft_wrap=True)
    except (LeftError, OSError) as error:
        reason = os_errors.reason(error) if isinstance(error, OSError) else error
        console.print(f"\nCopies of {target} are not removed: {reason}.", soft_wrap=True)


def _only_of(cluster: Own, data: bytes) -> bool:
    try:
        return not kubeconfig_entries.without(_decoded(data), cluster)
    except KubeconfigError:
        return False


def _merge(settings: Settings, former: bytes, target: Path, user: pwd.struct_passwd, *, add: bool) -> Merged | None:
    """Merge the cluster's entries into a user's kubeconfig; None if it is left as it is, with a sentence."""
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
            changed = home_changes.change(target, edit, user.pw_uid, user.pw_gid, SYSTEM.now())
        except FileNotFoundError:
            changed = False
            if add and not home_files.give(target, edit(b""), user.pw_uid, user.pw_gid):
                raise LeftError("its folder cannot be written") from None
    except (LeftError, KubeconfigError, OSError) as error:
        _leave(target, error, "" if add else f"; `{sudo()}wherry kubeconfig` prints the present credentials")
        return None
    if changed and not add:
        console.print(f"updated {target}: context {found.context}", soft_wrap=True)
    if found.other_key and not add:
        what = f"{target} keeps the credentials of its context {found.context}, which were not the administrator's"
        console.print(f"{what}: `{sudo()}wherry kubeconfig` prints those", soft_wrap=True)
    return found


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise KubeconfigError("it is no kubeconfig: it is not UTF-8") from None


def _leave(target: Path, error: Exception, fix: str = "") -> None:
    reason = os_errors.reason(error) if isinstance(error, OSError) else error
    console.print(f"\n{target} is not changed: {reason}{fix}.", soft_wrap=True)


def _commands(admin: str) -> list[str]:
    """Return the commands with which kubectl uses the cluster: the administrator's file is for root alone."""
    if not sudo():
        return [f"export KUBECONFIG={admin}"]
    return [f"(umask 077; sudo wherry kubeconfig >{OWN_FILE})", f"export KUBECONFIG={OWN_FILE}"]
