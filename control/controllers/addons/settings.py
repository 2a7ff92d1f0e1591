"""Settings of the addon controller, without its modules: a server without addons does not import these."""

from __future__ import annotations

from pathlib import Path

import msgspec


class AddonSettings(msgspec.Struct, frozen=True):
    """The folder of addons, those that are disabled, and this server among those that share the store."""

    folder: Path
    disabled: frozenset[str] = frozenset()
    server: str = ""
    shared: bool = False
    """True if other servers may apply addons, too."""
    record: Path | None = None
    """File with the names of the addons that were applied from the folder; None: there is none."""
