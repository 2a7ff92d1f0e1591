"""What every proxy mode offers, and which mode serves."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from typing import Protocol

from netproxy.errors import UnsupportedModeError
from netproxy.iptables.static import StaticSettings
from netproxy.model import ServicePort

Services = Mapping[str, tuple[ServicePort, ...]]
"""The desired state of some Services by key; an empty tuple for one that is gone."""


class Remover(Protocol):
    """What can take away that of ours which an earlier life left."""

    async def cleanup(self) -> None:
        """Remove everything of ours."""
        ...


class Backend(Remover, Protocol):
    """One IP family's rules in one proxy mode."""

    @property
    def family(self) -> int: ...

    async def start(self, services: Services) -> None:
        """Take over the kernel's state: afterwards it is the desired one, without a gap on the way."""
        ...

    async def apply(self, services: Services) -> None:
        """Bring the Services named to their new desired state."""
        ...

    async def set_static(self, settings: StaticSettings) -> None:
        """Change what does not depend on Services."""
        ...

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Services) -> None:
        """Change where pods live, which masquerading depends on; `services` are all there are."""
        ...

    async def verify(self) -> bool:
        """Repair what others changed; return whether anything had to be."""
        ...


def check_mode(mode: str) -> str:
    """Return the mode to serve ("auto" becomes iptables); UnsupportedModeError where it cannot be, with the reason."""
    if mode in ("iptables", "auto"):
        return "iptables"
    if mode == "nftables":
        if shutil.which("nft") is None:
            raise UnsupportedModeError("mode nftables: the command nft is not installed (Debian: package nftables)")
        return mode
    if mode == "ipvs":
        if not os.path.exists("/proc/net/ip_vs"):
            raise UnsupportedModeError(
                "mode ipvs: this kernel has no IP virtual server (no /proc/net/ip_vs; module ip_vs), and Wherry's IPVS "
                "mode is not built yet: use mode iptables or nftables"
            )
        raise UnsupportedModeError("mode ipvs: not built yet: use mode iptables or nftables")
    raise UnsupportedModeError(f"mode {mode}: unknown: use mode iptables")
