"""Backend of the iptables mode: writes Services as deltas of upstream's chains."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes, metrics
from netproxy.errors import UnansweredError
from netproxy.iptables.packet_counters import PacketCounters
from netproxy.iptables.rules import fragment
from netproxy.large_changes import count_endpoints
from netproxy.model import ServicePort
from netproxy.service_limits import CHAINS, ModeCost
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.reconciler import ChainReconciler
from netproxy.xtables.shadow import Fragment, Shadow
from netproxy.xtables.writer import Writer

MANY_ENDPOINTS = 1000
"""From here on rules in tables that are copied whole at each change are kept lean; upstream's bound for the same."""


class IPTablesBackend(ChainReconciler):
    """One IP family's rules."""

    def __init__(
        self,
        writer: Writer,
        rules: RuleSettings,
        settings: FixedChainSettings,
        *,
        period: float = 30,
        clock: Clock = SYSTEM,
    ) -> None:
        super().__init__(writer, Shadow(settings), clock, period)
        self._rules = rules
        self._packets = PacketCounters(writer)
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._endpoints = 0

    @property
    def cost(self) -> ModeCost:
        return CHAINS

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Write only what differs from what the kernel holds, so that a restart causes no gap."""
        before = self._before(services)
        self._count_endpoints(services)
        self._put((await self._build(before, services, lambda rules: ""))[0])
        await self.take_over()

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the kernel to the new desired state of the Services named; WriteError where even a full write fails.

        WriteTimeout where the change takes too long: what is desired is then as before, if nothing of it was written.
        """
        before, rules = self._before(services), {key: self._shadow.fragment(key) for key in services}
        if self._count_endpoints(services):
            services = {**self._ports, **services}
        made, text = await self._build(before, services, self._shadow.difference)
        self._put(made)
        try:
            await self.write(text)
        except UnansweredError:
            if self.nothing_written():
                self._count_endpoints(before)
                self._put(rules)
            raise

    def _before(self, services: Mapping[str, tuple[ServicePort, ...]]) -> dict[str, tuple[ServicePort, ...]]:
        """Return Services as they are desired so far."""
        return {key: self._ports.get(key, ()) for key in services}

    def _put(self, fragments: Mapping[str, Fragment]) -> None:
        """Store the rules of Services in the shadow."""
        for key, rules in fragments.items():
            self._shadow.put(key, rules)
        for table, count in self._shadow.rule_counts.items():
            metrics.RULES.labels(table, self._label).set(count)

    async def _build(
        self,
        before: Mapping[str, tuple[ServicePort, ...]],
        services: Mapping[str, tuple[ServicePort, ...]],
        text: Callable[[Mapping[str, Fragment]], str],
    ) -> tuple[dict[str, Fragment], str]:
        """Return the rules of Services, which were as `before`, and a text made of them."""
        rules = self._rules

        def make() -> tuple[dict[str, Fragment], str]:
            made = {key: fragment(ports, rules) for key, ports in services.items()}
            return made, text(made)

        return await large_changes.compute(before, services, make)

    def _count_endpoints(self, services: Mapping[str, tuple[ServicePort, ...]]) -> bool:
        """Count endpoints, and return whether so many came or went that every rule is now written otherwise."""
        for key, ports in services.items():
            self._endpoints += count_endpoints(ports) - count_endpoints(self._ports.pop(key, ()))
            if ports:
                self._ports[key] = ports
        lean = self._writer.copies_whole_table and self._endpoints > (
            MANY_ENDPOINTS // 2 if self._rules.lean else MANY_ENDPOINTS
        )
        changed = lean != self._rules.lean
        self._rules = replace(self._rules, lean=lean)
        return changed

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change the ranges of pods, which masquerading depends on; `services` are all Services."""
        if cidrs != self._rules.local_cidrs:
            self._rules = replace(self._rules, local_cidrs=cidrs)
            await self.apply(services)

    async def count_packets(self) -> None:
        """Bring the metrics that count packets up to date."""
        await self._packets.update(self._shadow.settings)
