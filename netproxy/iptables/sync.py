"""Brings the kernel to the desired state and keeps it there: deltas, a full comparison where one is due, repair.

A delta is applied blind, against the shadow. Whatever the kernel refuses, and whatever others change, is settled by a
full comparison: read everything, write the difference. Whether others changed anything is asked every few seconds with
the writer's fingerprint, which lists no rule; on legacy tables, where a change can leave sizes as they were, a
comparison is also made every sync period. A comparison may cost at most a twentieth of the time that passes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from kube.clock import SYSTEM, Clock
from netproxy import metrics
from netproxy.errors import WriteError
from netproxy.iptables import shadow, static
from netproxy.iptables.rules import RuleSettings, fragment
from netproxy.iptables.shadow import Shadow
from netproxy.iptables.writer import Writer
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

COST_SHARE = 20


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
    ) -> None:
        self._writer, self._rules, self._clock, self._period = writer, rules, clock, period
        self._shadow = Shadow(settings)
        self._fingerprint = b""
        self._suspect = True
        self._compared_at = -1e9
        self._compare_cost = 0.0

    @property
    def family(self) -> int:
        return self._rules.family

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take over whatever the kernel holds: write only what differs, so that a restart causes no gap."""
        for key, ports in services.items():
            self._shadow.set(key, fragment(ports, self._rules))
        await self._compare("start")

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the kernel to the new desired state of the Services named; WriteError where even a full write fails."""
        text = self._shadow.delta({key: fragment(ports, self._rules) for key, ports in services.items()})
        if not text:
            return
        for table, count in self._shadow.rule_counts.items():
            metrics.RULES.labels(table, f"IPv{self.family}").set(count)
        untouched = self._fingerprint == self._writer.fingerprint()
        started = self._clock.monotonic()
        try:
            await self._writer.apply(text)
        except WriteError as error:
            metrics.RESTORE_FAILURES.inc()
            log.warning("a change of rules was refused, comparing everything: %s", error)
            await self._compare("refused change")
            return
        metrics.PARTIAL_SYNC.observe(self._clock.monotonic() - started)
        self._suspect = self._suspect or not untouched
        self._fingerprint = self._writer.fingerprint()

    async def set_static(self, settings: static.StaticSettings) -> None:
        """Change what the fixed chains are made from, and the chains with it."""
        if settings != self._shadow.settings:
            self._shadow.settings = settings
            await self._compare("new settings")

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which every Service's masquerade depends on; `services` are all there are."""
        if cidrs != self._rules.local_cidrs:
            self._rules = replace(self._rules, local_cidrs=cidrs)
            await self.apply(services)

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        now = self._clock.monotonic()
        found = self._writer.fingerprint()
        period_over = not _tells_all(self._writer) and now - self._compared_at >= self._period
        if found and found == self._fingerprint and not self._suspect and not period_over:
            return False
        if now - self._compared_at < self._compare_cost * COST_SHARE:
            return False
        return await self._compare("check")

    async def cleanup(self) -> None:
        """Remove everything of ours, whoever wrote it."""
        text = shadow.cleanup(await self._writer.read(), self.family)
        if text:
            await self._writer.apply(text)

    async def _compare(self, why: str) -> bool:
        started = self._clock.monotonic()
        self._suspect = True
        # Read the fingerprint first: a change by others during the comparison must show at the next look.
        before = self._writer.fingerprint()
        text = self._shadow.reconcile(await self._writer.read())
        if text:
            try:
                await self._writer.apply(text)
            except WriteError:
                metrics.RESTORE_FAILURES.inc()
                raise
            if why == "check":
                metrics.REPAIRS.inc()
                log.warning("repaired rules that were changed by others: %d lines", text.count("\n"))
            self._fingerprint = self._writer.fingerprint()
        else:
            self._fingerprint = before
        self._suspect = False
        self._compared_at = self._clock.monotonic()
        self._compare_cost = self._compared_at - started
        metrics.FULL_SYNC.observe(self._compare_cost)
        return bool(text)


def _tells_all(writer: Writer) -> bool:
    """Tell whether the writer's fingerprint changes with every change (nf_tables), or only with most."""
    return getattr(writer, "flavour", "nft") == "nft"
