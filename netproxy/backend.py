"""What every proxy mode offers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from netproxy.iptables.static import StaticSettings
from netproxy.model import ServicePort
from netproxy.service_limits import ModeCost

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

    @property
    def cost(self) -> ModeCost:
        """What a Service may take."""
        ...

    @property
    def starving(self) -> bool:
        """Whether `verify` comes to nothing because changes never cease: nothing is to be written during the next."""
        ...

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
