"""Brings our table to the desired state and keeps it there.

As in the iptables mode: deltas are applied blind, and everything is compared at the start, after a refusal, and when the
tables' generation says that somebody changed something. Rules are compared with how nft described them after our own
last write; what differs is written again.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from kube.clock import SYSTEM, Clock
from netproxy import metrics
from netproxy.errors import WriteError
from netproxy.iptables.rules import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.model import ServicePort
from netproxy.nftables import chains
from netproxy.nftables.elements import fragment
from netproxy.nftables.shadow import Shadow
from netproxy.nftables.writer import Contents, Writer

log = logging.getLogger(__name__)

COST_SHARE = 20


class NFTablesBackend:
    """One IP family's table."""

    def __init__(self, writer: Writer, rules: RuleSettings, settings: StaticSettings, *, clock: Clock = SYSTEM) -> None:
        self._writer, self._clock = writer, clock
        self._shadow = Shadow(settings, rules)
        self._described: dict[str, list[Any]] | None = None
        self._fingerprint = b""
        self._suspect = True
        self._compared_at = -1e9
        self._compare_cost = 0.0

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
        if not text:
            return
        untouched = self._fingerprint == self._writer.fingerprint()
        started = self._clock.monotonic()
        try:
            await self._writer.apply(text)
        except WriteError as error:
            metrics.RESTORE_FAILURES.inc()
            log.warning("a change was refused, comparing everything: %s", error)
            await self._rewrite(await self._writer.read())
            return
        metrics.PARTIAL_SYNC.observe(self._clock.monotonic() - started)
        if "chain" in text:
            self._described = None
        self._suspect = self._suspect or not untouched
        self._fingerprint = self._writer.fingerprint()

    async def set_static(self, settings: StaticSettings) -> None:
        """Change what the fixed chains are made from, and the chains with it."""
        if settings != self._shadow.settings:
            self._shadow.settings = settings
            await self._rewrite(await self._writer.read())

    async def set_local_cidrs(self, cidrs: tuple[str, ...], services: Mapping[str, tuple[ServicePort, ...]]) -> None:
        """Change where pods live, which masquerading depends on; `services` are all there are."""
        if cidrs != self._shadow.rules.local_cidrs:
            self._shadow.rules = replace(self._shadow.rules, local_cidrs=cidrs)
            for key, ports in services.items():
                self._shadow.put(key, fragment(ports, self._shadow.rules))
            await self._rewrite(await self._writer.read())

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        found = self._writer.fingerprint()
        if found and found == self._fingerprint and not self._suspect:
            if self._described is None:
                self._described = (await self._writer.read()).rules
            return False
        if self._clock.monotonic() - self._compared_at < self._compare_cost * COST_SHARE:
            return False
        started = self._clock.monotonic()
        held = await self._writer.read()
        whole = held.elements == self._shadow.elements and (
            held.rules == self._described if self._described is not None else False
        )
        if whole:
            self._fingerprint, self._suspect = found, False
            self._compared_at = self._clock.monotonic()
            self._compare_cost = self._compared_at - started
            return False
        told = self._described is not None or held.elements != self._shadow.elements
        await self._rewrite(held)
        if told:
            metrics.REPAIRS.inc()
            log.warning("repaired our table, which others had changed")
        return told

    async def cleanup(self) -> None:
        """Remove our table."""
        if await self._writer.exists():
            await self._writer.apply(f"delete table {self._shadow.table}\n")

    async def _rewrite(self, held: Contents) -> None:
        started = self._clock.monotonic()
        self._suspect = True
        text = self._shadow.reconcile(held.elements, held.rules, held.sets)
        try:
            await self._writer.apply(text)
        except WriteError as error:
            metrics.RESTORE_FAILURES.inc()
            # A table that cannot be led to the right state (its maps have other types) is replaced, in one transaction.
            log.warning("replacing table %s: %s", chains.TABLE, error)
            fresh = self._shadow.reconcile({}, (), ())
            await self._writer.apply(f"add table {self._shadow.table}\ndelete table {self._shadow.table}\n{fresh}")
        self._fingerprint = self._writer.fingerprint()
        self._described = (await self._writer.read()).rules
        self._suspect = self._fingerprint != self._writer.fingerprint()
        self._compared_at = self._clock.monotonic()
        self._compare_cost = self._compared_at - started
        metrics.FULL_SYNC.observe(self._compare_cost)
