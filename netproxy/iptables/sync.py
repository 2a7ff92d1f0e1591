"""Brings the kernel to the desired state and keeps it there: deltas, a full comparison where one is due, repair.

Whatever the kernel refuses of a delta, and whatever others change, is settled by a full comparison: read everything,
write the difference. When one is due is drift.py's business.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import large_changes, metrics
from netproxy.drift import DriftWatch
from netproxy.errors import WriteError, WriteTimeout
from netproxy.iptables import restore_text, shadow, static
from netproxy.iptables.packet_counters import PacketCounters
from netproxy.iptables.rules import Fragment, fragment
from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.shadow import Shadow
from netproxy.iptables.writer import Writer
from netproxy.large_changes import count_endpoints
from netproxy.model import ServicePort
from netproxy.service_limits import CHAINS, ModeCost

log = logging.getLogger(__name__)

MANY_ENDPOINTS = 1000
"""From here on rules in tables that are copied whole at each change are kept lean; upstream's bound for the same."""


class IPTablesBackend:
    """One IP family's rules."""

    def __init__(
        self,
        writer: Writer,
        rules: RuleSettings,
        settings: static.StaticSettings,
        *,
        period: float = 30,
        clock: Clock = SYSTEM,
        layout: static.Layout = static.IPTABLES,
    ) -> None:
        self._writer, self._rules, self._clock = writer, rules, clock
        self._shadow = Shadow(settings, layout)
        self._packets = PacketCounters(writer)
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._endpoints = 0
        self._torn = False
        """Whether a write failed, so that the tables are not what deltas are made from."""
        self._drift = DriftWatch(writer.fingerprint, clock, None if writer.tells_all else period)

    @property
    def family(self) -> int:
        return self._rules.family

    @property
    def cost(self) -> ModeCost:
        return CHAINS

    @property
    def starving(self) -> bool:
        return self._drift.starving

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take over whatever the kernel holds: write only what differs, so that a restart causes no gap."""
        self._take_in(services)
        for key, rules in (await self._made(services, lambda rules: ""))[0].items():
            self._shadow.put(key, rules)
        self._count_rules()
        await self._compare("start")

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the kernel to the new desired state of the Services named; WriteError where even a full write fails.

        WriteTimeout where the change takes too long: what is desired is then as before, if nothing of it was written.
        """
        before = {key: (self._ports.get(key, ()), self._shadow.fragment(key)) for key in services}
        try:
            await self._apply(services)
        except WriteTimeout:
            if not self._torn:
                self._take_in({key: ports for key, (ports, _) in before.items()})
                for key, (_, rules) in before.items():
                    self._shadow.put(key, rules)
                self._count_rules()
            raise

    async def _apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        if self._take_in(services):
            services = {**self._ports, **services}
        made, text = await self._made(services, self._shadow.difference)
        for key, rules in made.items():
            self._shadow.put(key, rules)
        if text:
            self._count_rules()
        await self._write(text)

    async def _made(
        self, services: Mapping[str, tuple[ServicePort, ...]], text: Callable[[Mapping[str, Fragment]], str]
    ) -> tuple[dict[str, Fragment], str]:
        """Return the rules of Services and a text made of them."""
        rules = self._rules

        def make() -> tuple[dict[str, Fragment], str]:
            made = {key: fragment(ports, rules) for key, ports in services.items()}
            return made, text(made)

        return await large_changes.made(services, make)

    def _count_rules(self) -> None:
        for table, count in self._shadow.rule_counts.items():
            metrics.RULES.labels(table, metrics.family_label(self.family)).set(count)

    def _take_in(self, services: Mapping[str, tuple[ServicePort, ...]]) -> bool:
        """Count endpoints, and return whether so many came or went that every rule is now written otherwise."""
        for key, ports in services.items():
            self._endpoints += count_endpoints(ports) - count_endpoints(self._ports.pop(key, ()))
            if ports:
                self._ports[key] = ports
        lean = self._writer.copies_whole and self._endpoints > (
            MANY_ENDPOINTS // 2 if self._rules.lean else MANY_ENDPOINTS
        )
        changed = lean != self._rules.lean
        self._rules = replace(self._rules, lean=lean)
        return changed

    async def set_static(self, settings: static.StaticSettings) -> None:
        """Change what the fixed chains are made from, and the chains with it."""
        if settings != self._shadow.settings:
            text = self._shadow.change_settings(settings)
            if text is None:
                await self._compare("new settings")
            else:
                await self._write(text)

    async def _write(self, text: str) -> None:
        """Apply a delta; one that is refused is made up for by a comparison of everything, and so is a refusal of that.

        One that takes too long is not: a comparison would take as long again.
        """
        if self._torn:
            await self._compare("refused change")
            return
        if not text:
            return
        started = self._clock.monotonic()
        try:
            async with self._drift.writing(restore_text.transactions(text)):
                await self._writer.apply(text)
            for table, count in restore_text.lines_by_table(text).items():
                metrics.IPTABLES_LAST.labels(table, metrics.family_label(self.family)).set(count)
        except WriteTimeout:
            metrics.PARTIAL_RESTORE_FAILURES.labels(metrics.family_label(self.family)).inc()
            # What is killed in a later table has written those before. Only a count of transactions tells.
            self._torn = not (self._writer.tells_all and self._drift.took_nothing())
            raise
        except WriteError as error:
            metrics.PARTIAL_RESTORE_FAILURES.labels(metrics.family_label(self.family)).inc()
            log.warning("a change of rules was refused, comparing everything: %s", error)
            self._torn = True
            await self._compare("refused change")
            return
        metrics.PARTIAL_SYNC.labels(metrics.family_label(self.family)).observe(self._clock.monotonic() - started)

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which every Service's masquerade depends on; `services` are all there are."""
        if cidrs != self._rules.local_cidrs:
            self._rules = replace(self._rules, local_cidrs=cidrs)
            await self.apply(services)

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        return self._drift.due and await self._compare("check")

    async def count_packets(self) -> None:
        """Bring the metrics that count packets up to date."""
        await self._packets.look(self._shadow.settings)

    async def cleanup(self) -> None:
        """Remove everything of ours, whoever wrote it."""
        text = shadow.cleanup(await self._writer.read())
        if text:
            await self._writer.apply(text)

    async def _compare(self, why: str) -> bool:
        """Read everything and write the difference; return whether there was any. A check gives way to other writes."""
        while True:
            began = await self._drift.began()
            held = await self._writer.read()
            if began[0] == self._drift.writes:
                break
            if why == "check":
                self._drift.void()
                return False
        text = self._shadow.reconcile(held)
        if text:
            try:
                async with self._drift.writing(restore_text.transactions(text), since=began[1]):
                    await self._writer.apply(text)
            except WriteError:
                self._torn = True
                metrics.RESTORE_FAILURES.labels(metrics.family_label(self.family)).inc()
                raise
            if why == "check":
                metrics.REPAIRS.inc()
                log.warning("repaired rules that were changed by others, in %s", restore_text.chains_named(text))
        else:
            self._drift.found_whole(began)
        self._torn = False
        metrics.FULL_SYNC.labels(metrics.family_label(self.family)).observe(self._drift.took(began[2]))
        return bool(text)
