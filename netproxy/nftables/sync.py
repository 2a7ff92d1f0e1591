"""The nftables mode as a backend: Services in, deltas of the table `kube-proxy` out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes
from netproxy.errors import UnansweredError
from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.model import ServicePort
from netproxy.nftables.elements import fragment
from netproxy.nftables.keeper import TableKeeper
from netproxy.nftables.shadow import Difference, Shadow
from netproxy.nftables.writer import Writer
from netproxy.service_limits import PAIRS, ModeCost


class NFTablesBackend:
    """One IP family's table."""

    def __init__(self, writer: Writer, rules: RuleSettings, settings: StaticSettings, *, clock: Clock = SYSTEM) -> None:
        self._shadow = Shadow(settings, rules)
        self._keeper = TableKeeper(writer, self._shadow, clock)

    @property
    def family(self) -> int:
        return self._shadow.settings.family

    @property
    def cost(self) -> ModeCost:
        return PAIRS

    @property
    def starving(self) -> bool:
        return self._keeper.starving

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take over whatever our table holds: elements that are right stay, so a restart causes no gap."""
        await self._put(services)
        await self._keeper.take_over()

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the Services named to their new desired state; WriteError where even a full write fails.

        WriteTimeout where the change takes too long: what is desired is then as before, if nothing of it was written.
        """
        shadow = self._shadow

        def make() -> tuple[Difference, str]:
            difference = self._difference(services)
            return difference, shadow.text(difference)

        difference, text = await large_changes.made(services, make)
        shadow.take_in(difference.new)
        try:
            await self._keeper.write(text)
        except UnansweredError:
            if self._keeper.took_nothing():
                shadow.take_in(difference.old)
            raise

    def _difference(self, services: Mapping[str, tuple[ServicePort, ...]]) -> Difference:
        rules = self._shadow.rules
        return self._shadow.difference({key: fragment(ports, rules) for key, ports in services.items()})

    async def _put(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take in Services without writing any."""
        difference = await large_changes.made(services, lambda: self._difference(services))
        self._shadow.take_in(difference.new)

    async def set_static(self, settings: StaticSettings) -> None:
        """Change what the fixed chains are made from, and the chains with it."""
        await self._keeper.write(self._shadow.change_settings(settings))

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which masquerading depends on; `services` are all there are."""
        if cidrs != self._shadow.rules.local_cidrs:
            self._shadow.rules = replace(self._shadow.rules, local_cidrs=cidrs)
            await self._put(services)
            await self._keeper.take_over()

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        return await self._keeper.verify()

    async def cleanup(self) -> None:
        """Remove our table."""
        await self._keeper.remove()
