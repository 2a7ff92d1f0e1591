"""The folders of CNI plugins that the runtime searches, and links between them.

Debian's package installs into the first folder, the manifests of other pod networks into the second; those need reference
plugins of the package too (`loopback`, `portmap`, `host-local`). containerd searches several folders from 2.1 on (`bin_dirs`),
and one before (`bin_dir`). There the second folder has links to what is only in the first. They are links, not copies: they
follow updates of the package, and in a container that mounts the folder they lead nowhere, so no installer writes through them.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from kube.files import write_file
from wherry import writable_by_others
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.settings import Settings

FOLDERS = ("/usr/lib/cni", "/opt/cni/bin")


def find() -> str | None:
    """Return the folder of the reference plugins; None if there is none."""
    return next((folder for folder in FOLDERS if Path(folder, "bridge").exists()), None)


def searched(settings: Settings) -> tuple[Path, ...]:
    """Return the folders in the order of the search.

    Wherry's own network uses the package's plugins, whatever other programs install; for another network its own come first.
    """
    if settings.own_pod_network:
        first = find() or FOLDERS[0]
        return tuple(map(Path, (first, *(folder for folder in FOLDERS if folder != first))))
    return settings.layout.cni_plugins, Path(FOLDERS[0])


def require(settings: Settings) -> None:
    """Raise WherryError if Wherry's own network lacks its plugins."""
    if settings.own_pod_network and not find():
        raise WherryError(f"no CNI plugins in {' or '.join(FOLDERS)}: apt-get install containernetworking-plugins")


def open_to_others(folder: Path) -> bool:
    """Return whether other accounts than root can put programs into a folder, which the runtime runs as root."""
    return bool(writable_by_others.problem_of(folder))


def link(settings: Settings) -> None:
    """Link the package's plugins into the folder of another network's, for a runtime that searches only one."""
    layout, package = settings.layout, Path(FOLDERS[0])
    try:
        present = [each.name for each in package.iterdir() if each.is_file() and os.access(each, os.X_OK)]
    except FileNotFoundError:
        present = []
    linked = _linked(layout)
    for name in linked - set(present):
        (layout.cni_plugins / name).unlink(missing_ok=True)
    missing = [name for name in present if not os.path.lexists(layout.cni_plugins / name)]
    if not linked and not missing:
        return
    layout.cni_plugins.mkdir(parents=True, exist_ok=True, mode=0o755)
    names = sorted({*missing, *linked} & set(present))
    write_file(layout.cni_links, "".join(f"{name}\n" for name in names).encode(), 0o600)
    for name in missing:
        with contextlib.suppress(FileExistsError):  # an installer was faster
            (layout.cni_plugins / name).symlink_to(package / name)


def remove_links(layout: Layout) -> None:
    """Remove the links that `link` made, as far as they are still there."""
    for name in _linked(layout):
        (layout.cni_plugins / name).unlink(missing_ok=True)
    layout.cni_links.unlink(missing_ok=True)


def _linked(layout: Layout) -> set[str]:
    """Return the names of the links that are there and were made by `link`."""
    found = set()
    with contextlib.suppress(FileNotFoundError):
        for name in layout.cni_links.read_text().splitlines():
            with contextlib.suppress(OSError):
                if os.readlink(layout.cni_plugins / name) == str(Path(FOLDERS[0], name)):
                    found.add(name)
    return found
