"""Merges kubeconfig files as kubectl does: the first file that has a context, cluster or user of a name wins, and its
current context. Paths in a file are relative to its folder. Source: client-go, tools/clientcmd.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kube import kubeconfig
from kube.exec_credentials import ClusterInfo, Plugin, plugin_of
from kube.kubeconfig import Access, KubeconfigError

_PATHS = {
    "clusters": ("cluster", ("certificate-authority",)),
    "users": ("user", ("client-certificate", "client-key", "tokenFile")),
    "contexts": ("context", ()),
}


@dataclass(frozen=True, slots=True)
class Chosen:
    """The access of a context, without the credentials that a plugin has yet to give."""

    access: Access
    plugin: Plugin | None = None


def merged(paths: Sequence[Path], context: str = "") -> Chosen:
    """Return the access of a context of several files, by default of the current one.

    Files that do not exist are left out, unless it is all of them. Raises KubeconfigError, also for impersonation and proxies.
    """
    document: dict[str, Any] = {"contexts": [], "clusters": [], "users": []}
    read: list[Path] = []
    for path in paths:
        try:
            found = kubeconfig.read(path)
        except kubeconfig.NoFile:
            continue
        read.append(path)
        try:
            _add(document, found, path.parent)
        except (AttributeError, KeyError, TypeError):  # a part of another type
            raise KubeconfigError(f"{path}: not a kubeconfig") from None
    if not read:
        raise KubeconfigError(f"{paths[0]}: no such file")
    label = Path(os.pathsep.join(map(str, read)))
    try:
        user = _user(document, context)
        settings, base = user.pop("exec", None), user.pop(_BASE, "")
        access = kubeconfig.access_of(document, label, context, exactly=True)
        if not settings or access.token or access.token_file or access.certificate or access.certificate_file:
            return Chosen(access)
        cluster = ClusterInfo(access.server, access.server_name, access.insecure, access.ca)
        return Chosen(access, plugin_of(settings, Path(base), cluster))
    except (AttributeError, KeyError, TypeError):
        raise KubeconfigError(f"{label}: not a kubeconfig") from None


_BASE = "wherry-folder"
"""Key of the folder of the file that a user is from, while files are merged."""


def _add(document: dict[str, Any], found: dict[str, Any], base: Path) -> None:
    if not document.get("current-context"):
        document["current-context"] = found.get("current-context") or ""
    for part, (inner, fields) in _PATHS.items():
        known = {entry["name"] for entry in document[part]}
        for entry in found.get(part) or ():
            if entry["name"] in known:
                continue
            values = dict(entry.get(inner) or {})
            values |= {name: str(base.absolute() / values[name]) for name in fields if values.get(name)}
            if part == "users":
                values[_BASE] = str(base.absolute())
            document[part].append({"name": entry["name"], inner: values})


def _user(document: dict[str, Any], context: str) -> dict[str, Any]:
    """Return the entry of a context's user; {} if it has none, or if there is no such context."""
    name = context or document.get("current-context", "")
    chosen: dict[str, Any] = next((each["context"] for each in document["contexts"] if each["name"] == name), {})
    found: dict[str, Any] = next((each["user"] for each in document["users"] if each["name"] == chosen.get("user")), {})
    return found
