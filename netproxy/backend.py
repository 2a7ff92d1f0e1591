"""The interface of every proxy mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from netproxy.model import ServicePort
from netproxy.service_limits import ModeCost
from netproxy.settings import FixedChainSettings

Services = Mapping[str, tuple[ServicePort, ...]]
"""The desired state of some Services by key; an empty tuple for one that is gone."""


class Remover(Protocol):
    """Removes what an earlier process has written."""

    async def cleanup(self) -> None:
        """Remove everything of ours, whoever wrote it."""
        ...


class Backend(Remover, Protocol):
    """One IP family's rules in one proxy mode."""

    @property
    def family(self) -> int: ...

    @property
    def cost(self) -> ModeCost:
        """The limits of a Service's rules."""
        ...

    @property
    def verify_needs_lock(self) -> bool:
        """True if the next `verify` must run while nothing is written, for writes invalidated the last comparisons."""
        ...

    async def start(self, services: Services) -> None:
        """Bring the kernel to the desired state without a gap, whatever an earlier process has left."""
        ...

    async def apply(self, services: Services) -> None:
        """Bring the Services named to their new desired state."""
        ...

    async def change_fixed_chains(self, settings: FixedChainSettings) -> None:
        """Change the settings of the fixed chains."""
        ...

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Services) -> None:
        """Change the ranges of pods, which masquerading depends on; `services` are all Services."""
        ...

    async def verify(self) -> bool:
        """Repair what others changed; return whether anything had to be repaired."""
        ...
