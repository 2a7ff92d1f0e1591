"""The kubeconfig of the user who called sudo: created if there is none, kept current, and never changed if it is another's."""

from __future__ import annotations

import os

from wherry import home_files
from wherry.settings import Settings
from wherry.terminal import console

OWN_FILE = "~/.kube/wherry"
"""File that messages name beside a kubeconfig of another cluster."""


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
    """Replace ~/.kube/config if it still is the kubeconfig that `wherry up` wrote, for instance before another --api-port."""
    target, user = home_files.user_kubeconfig()
    now = present(settings)
    if settings.prefix != "/" or not former or former == now:
        return
    if home_files.remove(target, former, user.pw_uid):
        home_files.give(target, now, user.pw_uid, user.pw_gid)


def offer(settings: Settings) -> None:
    """Create ~/.kube/config if there is none, and print the next commands."""
    admin = settings.layout.admin_kubeconfig
    target, user = home_files.user_kubeconfig()
    first = []
    if settings.prefix == "/" and home_files.give(target, present(settings), user.pw_uid, user.pw_gid):
        console.print(f"\nkubectl is set up for {user.pw_name} in {target}. Try:", soft_wrap=True)
    else:
        if not home_files.holds(target, present(settings)):
            first = _commands(str(admin))
        console.print("\nThe cluster is up. Try:")
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


def _commands(admin: str) -> list[str]:
    """Return the commands with which kubectl uses the cluster: the administrator's file is for root alone."""
    if not sudo():
        return [f"export KUBECONFIG={admin}"]
    return [f"(umask 077; sudo wherry kubeconfig >{OWN_FILE})", f"export KUBECONFIG={OWN_FILE}"]
