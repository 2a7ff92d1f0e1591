"""The addons of a cluster as `wherry addons list` shows them: built-in ones, files of this machine, and what was applied."""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Sequence
from dataclasses import dataclass

from control import addon_names
from control.controllers.addons import folder
from control.controllers.addons.applyset import REFUSED, Parent, addon_identifier
from control.controllers.addons.folder import AddonFile, FolderRefused
from control.controllers.addons.parents import Parents
from kube.client import Client
from wherry.errors import WherryError
from wherry.output import Column
from wherry.settings import USER, Settings

ENABLED, DISABLED, PENDING = "Enabled", "Disabled", "Pending"


@dataclass(frozen=True, slots=True)
class Addon:
    """An addon. `file` is empty for those that are built in, `objects` None if nothing of it was applied."""

    name: str
    state: str
    file: str = ""
    objects: int | None = None
    message: str = ""
    server: str = ""
    applyset: str = ""


COLUMNS: Sequence[Column[Addon]] = (
    Column("NAME", lambda addon: addon.name),
    Column("FILE", lambda addon: addon.file or "<built in>"),
    Column("OBJECTS", lambda addon: "-" if addon.objects is None else str(addon.objects)),
    Column("STATE", lambda addon: addon.state),
    Column("SERVER", lambda addon: addon.server or "-", wide=True),
    Column("APPLYSET", lambda addon: addon.applyset or "-", wide=True),
    Column("MESSAGE", lambda addon: addon.message or "-"),
)


def as_data(addon: Addon) -> dict[str, object]:
    """Return an addon as JSON data."""
    found: dict[str, object] = {"name": addon.name, "state": addon.state}
    if not addon.file:
        return found | {"builtIn": True}
    found |= {"file": addon.file, "objects": addon.objects or 0}
    for key, value in (("message", addon.message), ("server", addon.server), ("applySet", addon.applyset)):
        if value:
            found[key] = value
    return found


async def listed(settings: Settings, client: Client) -> list[Addon]:
    """Return the addons. Raise StatusError, or WherryError if this machine's folder cannot be used."""
    try:
        files = folder.scan(settings.layout.addons, _owners())
    except FolderRefused as error:
        raise WherryError(str(error)) from error
    built_in = [Addon(name, _built_in(name, settings)) for name in addon_names.BUILT_IN]
    return [*built_in, *merged(files, await Parents(client).all(), settings.disable)]


def merged(files: Sequence[AddonFile], parents: Sequence[Parent], disabled: Sequence[str]) -> list[Addon]:
    """Return the addons of files and of what was applied, by name."""
    by_name = {parent.addon: parent for parent in parents}
    found = [_applied(parent) for parent in parents]
    for file in files:
        if file.is_addon and file.name in by_name:
            continue
        state = REFUSED if file.problem else DISABLED if file.name in disabled else PENDING
        found.append(Addon(file.name, state, file.path.name, message=file.problem))
    return sorted(found, key=lambda addon: (addon.name, addon.file))


def _applied(parent: Parent) -> Addon:
    return Addon(
        parent.addon,
        parent.state or PENDING,
        parent.file or "-",
        parent.objects,
        parent.message,
        parent.server,
        addon_identifier(parent.addon),
    )


def _built_in(name: str, settings: Settings) -> str:
    on = settings.load_balancer_enabled if name == addon_names.SERVICE_LOAD_BALANCER else name not in settings.disable
    return ENABLED if on else DISABLED


def _owners() -> set[int]:
    """Return the accounts that may own the folder: root, and the control plane's if there is one."""
    owners = {0}
    with contextlib.suppress(KeyError):
        owners.add(pwd.getpwnam(USER).pw_uid)
    return owners
