"""What every proxy mode offers, and which mode serves."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from typing import Protocol

from kube.process import CommandError, run
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


IPVS_TABLE = "/proc/net/ip_vs"


async def load_ipvs() -> None:
    """Load the kernel's virtual servers where they come as a module; no error where they are not to be had."""
    with contextlib.suppress(CommandError):
        await run(["modprobe", "ip_vs"], check=False, timeout=20)


def check_mode(mode: str) -> str:
    """Return the mode to serve ("auto" becomes iptables); UnsupportedModeError where it cannot be, with the reason."""
    if mode in ("iptables", "auto"):
        return "iptables"
    if mode == "nftables":
        if shutil.which("nft") is None:
            raise UnsupportedModeError("mode nftables: the command nft is not installed (Debian: package nftables)")
        return mode
    if mode == "ipvs":
        if not os.path.exists(IPVS_TABLE):
            raise UnsupportedModeError(
                "mode ipvs: this kernel has no IP virtual server (no /proc/net/ip_vs, and no module ip_vs to load): "
                "use mode iptables or nftables"
            )
        for command in ("ipvsadm", "ipset"):
            if shutil.which(command) is None:
                raise UnsupportedModeError(
                    f"mode ipvs: the command {command} is not installed (Debian: package {command})"
                )
        return mode
    raise UnsupportedModeError(f"mode {mode}: unknown: use mode iptables")
