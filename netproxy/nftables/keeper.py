"""Keeps one nftables table at its desired state: deltas, a full comparison where one is due, repair.

Deltas are applied blind, and everything is compared when drift.py says so. Rules are compared with how nft described
them after our own last write (its words differ from ours); what differs is written again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Protocol

from kube.clock import Clock
from netproxy import metrics
from netproxy.drift import DriftWatch
from netproxy.errors import UnansweredError, WriteError
from netproxy.nftables.commands import Held
from netproxy.nftables.listing import Contents
from netproxy.nftables.writer import Writer

log = logging.getLogger(__name__)


class Desired(Protocol):
    """What the table should hold."""

    @property
    def table(self) -> str:
        """The table as nft's commands name it: family and name."""
        ...

    @property
    def elements(self) -> Held: ...

    def reconcile(self, held: Held, held_chains: Iterable[str], held_sets: Iterable[str]) -> str:
        """Return the text that turns what the kernel holds into what it should hold."""
        ...


class TableKeeper:
    """Writes one table, and knows whether others changed it."""

    def __init__(self, writer: Writer, desired: Desired, clock: Clock) -> None:
        self._writer, self._desired, self._clock = writer, desired, clock
        self._described: dict[str, list[Any]] | None = None
        self._drift = DriftWatch(writer.fingerprint, clock)
        self._torn = False
        """Whether a write failed, so that the table is not what deltas are made from."""
        self._unanswered = False
        """Whether that was a delta of which nobody says whether it is in force."""
        self._family = metrics.family_label(6 if desired.table.startswith("ip6 ") else 4)

    @property
    def starving(self) -> bool:
        return self._drift.starving

    async def take_over(self) -> None:
        """Lead whatever the table holds to the desired state: elements that are right stay in force throughout."""
        self._torn = True
        began = await self._drift.began()
        await self._rewrite(await self._writer.read(), began[1])

    async def write(self, text: str) -> None:
        """Apply a delta; one that is refused is made up for by writing everything, and so is a refusal of everything."""
        self._unanswered = False
        if self._torn:
            await self.take_over()
            return
        if not text:
            return
        started = self._clock.monotonic()
        try:
            async with self._drift.writing(1):
                await self._writer.apply(text)
        except WriteError as error:
            metrics.NFTABLES_FAILURES.labels(self._family).inc()
            if isinstance(error, UnansweredError):
                self._torn = self._unanswered = True  # everything would take longer still
                raise
            log.warning("a change was refused, comparing everything: %s", error)
            await self.take_over()
            return
        metrics.PARTIAL_SYNC.labels(self._family).observe(self._clock.monotonic() - started)
        if "chain" in text:
            self._described = None

    def took_nothing(self) -> bool:
        """Return whether a delta that nobody answered left the table as it was; it must then be wanted no longer."""
        if self._unanswered and self._drift.took_nothing():
            self._torn = self._unanswered = False
            return True
        return False

    async def verify(self) -> bool:
        """Look whether anybody changed the tables and repair what is ours; return whether anything had to be."""
        if not self._drift.due:
            if self._described is None:
                await self._describe()
            return False
        began = await self._drift.began()
        held = await self._writer.read()
        if began[0] != self._drift.writes:
            self._drift.void()
            return False  # a change was written meanwhile: look again next time
        wrong = _names({*held.elements.items()} ^ {*self._desired.elements.items()})
        if self._described is not None:
            wrong |= {
                name
                for name in held.rules.keys() | self._described.keys()
                if held.rules.get(name) != self._described.get(name)
            }
        if not wrong and self._described is not None:
            self._drift.found_whole(began)
            metrics.FULL_SYNC.labels(self._family).observe(self._drift.took(began[2]))
            return False
        await self._rewrite(held, began[1])
        if wrong:
            metrics.REPAIRS.inc()
            log.warning(
                "repaired table %s, in which others had changed %s", self._desired.table, ", ".join(sorted(wrong)[:8])
            )
        return bool(wrong)

    async def _describe(self) -> None:
        """Learn how nft describes our rules, while nobody else has touched them since we wrote them."""
        began = await self._drift.began()
        if not self._drift.clean:
            return  # a comparison is due, though perhaps not yet
        rules = await self._writer.describe()
        if began[0] == self._drift.writes and self._drift.clean:
            self._described = rules

    async def remove(self) -> None:
        """Remove the table."""
        if await self._writer.exists():
            try:
                async with self._drift.writing(1):
                    await self._writer.apply(f"delete table {self._desired.table}\n")
            except WriteError:
                metrics.NFTABLES_CLEANUP_FAILURES.labels(self._family).inc()
                raise
        self._described = None

    async def _rewrite(self, held: Contents, since: bytes) -> None:
        began = self._clock.monotonic()
        self._torn = True
        text = self._desired.reconcile(held.elements, held.rules, held.sets)
        async with self._drift.writing(1, since):
            try:
                await self._writer.apply(text)
            except WriteError as error:
                metrics.NFTABLES_FAILURES.labels(self._family).inc()
                if isinstance(error, UnansweredError):
                    raise
                # A table that cannot be led to the right state (its maps have other types, it changed since it was
                # read) is replaced, in one transaction.
                table = self._desired.table
                log.warning("replacing table %s: %s", table, error)
                fresh = self._desired.reconcile({}, (), ())
                await self._writer.apply(f"add table {table}\ndelete table {table}\n{fresh}")
        self._described, self._torn = None, False
        metrics.FULL_SYNC.labels(self._family).observe(self._drift.took(began))


def _names(elements: Iterable[tuple[tuple[str, str], str]]) -> set[str]:
    return {name for (name, _), _ in elements}
