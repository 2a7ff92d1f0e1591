"""Backend of the nftables mode: writes Services as deltas of the table `kube-proxy`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes
from netproxy.errors import UnansweredError
from netproxy.model import ServicePort
from netproxy.nft.reconciler import TableReconciler
from netproxy.nft.writer import Writer
from netproxy.nftables.elements import fragment
from netproxy.nftables.shadow import Difference, Shadow
from netproxy.service_limits import PAIRS, ModeCost
from netproxy.settings import FixedChainSettings, RuleSettings


class NFTablesBackend(TableReconciler):
    """One IP family's table."""

    def __init__(
        self, writer: Writer, rules: RuleSettings, settings: FixedChainSettings, *, clock: Clock = SYSTEM
    ) -> None:
        self._shadow = Shadow(settings, rules)
        super().__init__(writer, self._shadow, clock)

    @property
    def cost(self) -> ModeCost:
        return PAIRS

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Write only the elements that differ from what our table holds, so that a restart causes no gap."""
        await self._put(services)
        await self.take_over()

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the Services named to their new desired state; WriteError where even a full write fails.

        WriteTimeout where the change takes too long: what is desired is then as before, if nothing of it was written.
        """
        shadow = self._shadow

        def make() -> tuple[Difference, str]:
            difference = self._difference(services)
            return difference, shadow.text(difference)

        difference, text = await large_changes.compute(shadow.size_of(services), services, make)
        shadow.store(difference.new)
        try:
            await self.write(text)
        except UnansweredError:
            if self.nothing_written():
                shadow.store(difference.old)
            raise

    def _difference(self, services: Mapping[str, tuple[ServicePort, ...]]) -> Difference:
        rules = self._shadow.rules
        return self._shadow.difference({key: fragment(ports, rules) for key, ports in services.items()})

    async def _put(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Store Services in the shadow without writing them."""
        size = self._shadow.size_of(services)
        difference = await large_changes.compute(size, services, lambda: self._difference(services))
        self._shadow.store(difference.new)

    async def change_fixed_chains(self, settings: FixedChainSettings) -> None:
        """Change the settings of the fixed chains, and the chains with them."""
        await self.write(self._shadow.change_settings(settings))

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change the ranges of pods, which masquerading depends on; `services` are all Services."""
        if cidrs != self._shadow.rules.local_cidrs:
            self._shadow.rules = replace(self._shadow.rules, local_cidrs=cidrs)
            await self._put(services)
            await self.take_over()
