"""Brings our table to the desired state and keeps it there.

As in the iptables mode: deltas are applied blind, and everything is compared when drift.py says so. Rules are compared
with how nft described them after our own last write; what differs is written again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kube.clock import SYSTEM, Clock
from netproxy import metrics
from netproxy.drift import DriftWatch
from netproxy.errors import WriteError
from netproxy.iptables.rules import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.model import ServicePort
from netproxy.nftables import chains
from netproxy.nftables.elements import fragment
from netproxy.nftables.shadow import Shadow
from netproxy.nftables.writer import Contents, Writer

log = logging.getLogger(__name__)


class NFTablesBackend:
    """One IP family's table."""

    def __init__(self, writer: Writer, rules: RuleSettings, settings: StaticSettings, *, clock: Clock = SYSTEM) -> None:
        self._writer, self._clock = writer, clock
        self._shadow = Shadow(settings, rules)
        self._described: dict[str, list[Any]] | None = None
        self._drift = DriftWatch(writer.fingerprint, clock)

    @property
    def family(self) -> int:
        return self._shadow.settings.family

    async def start(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Take over whatever our table holds: elements that are right stay, so a restart causes no gap."""
        for key, ports in services.items():
            self._shadow.put(key, fragment(ports, self._shadow.rules))
        await self._rewrite(await self._writer.read())

    async def apply(self, services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Bring the Services named to their new desired state; WriteError where even a full write fails."""
        rules = self._shadow.rules
        text = self._shadow.delta({key: fragment(ports, rules) for key, ports in services.items()})
        if text:
            await self._write(text)

    async def set_static(self, settings: StaticSettings) -> None:
        """Change what the fixed chains are made from, and the chains with it."""
        text = self._shadow.change_settings(settings)
        if text:
            await self._write(text)

    async def _write(self, text: str) -> None:
        """Apply a delta; one that is refused is made up for by writing everything."""
        started = self._clock.monotonic()
        try:
            async with self._drift.writing():
                await self._writer.apply(text)
        except WriteError as error:
            metrics.RESTORE_FAILURES.inc()
            log.warning("a change was refused, comparing everything: %s", error)
            await self._rewrite(await self._writer.read())
            return
        metrics.PARTIAL_SYNC.observe(self._clock.monotonic() - started)
        if "chain" in text:
            self._described = None

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which masquerading depends on; `services` are all there are."""
        if cidrs != self._shadow.rules.local_cidrs:
            self._shadow.rules = replace(self._shadow.rules, local_cidrs=cidrs)
            for key, ports in services.items():
                self._shadow.put(key, fragment(ports, self._shadow.rules))
            await self._rewrite(await self._writer.read())

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        if not self._drift.due:
            if self._described is None:
                await self._describe()
            return False
        began = await self._drift.began()
        held = await self._writer.read()
        if began[0] != self._drift.writes:
            return False  # a change was written meanwhile: look again next time
        wrong_elements = held.elements != self._shadow.elements
        if not wrong_elements and held.rules == self._described:
            self._drift.found_whole(began)
            metrics.FULL_SYNC.observe(self._drift.took(began[2]))
            return False
        told = wrong_elements or self._described is not None
        await self._rewrite(held)
        if told:
            metrics.REPAIRS.inc()
            log.warning("repaired our table, which others had changed")
        return told

    async def _describe(self) -> None:
        """Learn how nft describes our rules, while nobody else has touched them since we wrote them."""
        began = await self._drift.began()
        rules = await self._writer.describe()
        if began[0] == self._drift.writes and not self._drift.due:
            self._described = rules

    async def cleanup(self) -> None:
        """Remove our table."""
        if await self._writer.exists():
            await self._writer.apply(f"delete table {self._shadow.table}\n")

    async def _rewrite(self, held: Contents) -> None:
        began = self._clock.monotonic()
        text = self._shadow.reconcile(held.elements, held.rules, held.sets)
        async with self._drift.writing(everything=True):
            try:
                await self._writer.apply(text)
            except WriteError as error:
                metrics.RESTORE_FAILURES.inc()
                # A table that cannot be led to the right state (its maps have other types, it changed since it was
                # read) is replaced, in one transaction.
                log.warning("replacing table %s: %s", chains.TABLE, error)
                fresh = self._shadow.reconcile({}, (), ())
                await self._writer.apply(f"add table {self._shadow.table}\ndelete table {self._shadow.table}\n{fresh}")
        self._described = None
        metrics.FULL_SYNC.observe(self._drift.took(began))
