"""Reconciles one nftables table with its desired state.

Rules are compared with nft's listing after the last write, because nft prints rules differently from how they are written;
differences are written again. A table is changed in one transaction, so if any chain differs all are rewritten: no packet can
observe that. A thread compares a large table, because cluster DNS answers on the same event loop.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from kube.clock import Clock
from netproxy import large_changes, metrics
from netproxy.errors import UnansweredError, WriteError
from netproxy.nft.commands import reconcile
from netproxy.nft.table import Contents, Desired, Elements
from netproxy.nft.writer import Writer
from netproxy.reconciler import TextReconciler

log = logging.getLogger(__name__)
T = TypeVar("T")


class TableReconciler(TextReconciler):
    """Brings one table to its desired state. Deltas are texts for `nft -f`."""

    def __init__(self, writer: Writer, desired: Desired, clock: Clock) -> None:
        super().__init__(writer, 6 if desired.table.startswith("ip6 ") else 4, metrics.NFTABLES_FAILURES, clock)
        self._writer, self._desired = writer, desired
        self._described: dict[str, list[Any]] | None = None
        """Our rules in nft's words; None until they were read back."""

    async def take_over(self) -> None:
        self._needs_comparison = True
        comparison = await self._drift.begin_comparison()
        actual, desired = await self._writer.read(), copy.copy(self._desired)
        text = await self._compute(lambda: reconcile(desired, actual), actual)
        await self._rewrite(text, comparison.fingerprint)

    async def _compute(self, function: Callable[[], T], actual: Contents) -> T:
        return await large_changes.compute_sized(self._desired.size + len(actual.elements), function)

    async def _apply(self, delta: str) -> None:
        async with self._drift.writing(1):
            await self._writer.apply(delta)
        if "chain" in delta:
            self._described = None

    async def verify(self) -> bool:
        """Repair what others changed; return whether anything had to be repaired."""
        if not self._drift.comparison_due:
            if self._described is None:
                await self._describe()
            return False
        comparison = await self._drift.begin_comparison()
        actual, desired, described = await self._writer.read(), copy.copy(self._desired), self._described

        def compare() -> tuple[set[str], str]:
            wrong = _differing(actual, desired.elements, described)
            return wrong, reconcile(desired, actual) if wrong or described is None else ""

        wrong, text = await self._compute(compare, actual)
        if not self._drift.is_valid(comparison):
            self._drift.invalidated()
            return False
        if not text:
            self._drift.found_equal(comparison)
            metrics.FULL_SYNC.labels(self._label).observe(self._drift.finished(comparison.started))
            return False
        await self._rewrite(text, comparison.fingerprint)
        if wrong:
            metrics.REPAIRS.inc()
            log.warning(
                "repaired table %s, in which others had changed %s", self._desired.table, ", ".join(sorted(wrong)[:8])
            )
        return bool(wrong)

    async def _describe(self) -> None:
        """Read nft's listing of the rules, if no other program has changed them since the write."""
        comparison = await self._drift.begin_comparison()
        if not self._drift.unchanged:
            return  # a comparison is due, though perhaps not yet
        rules = await self._writer.describe()
        if self._drift.is_valid(comparison) and self._drift.unchanged:
            self._described = rules

    async def cleanup(self) -> None:
        """Remove the table, where there is one."""
        async with self._drift.writing(1):  # also the check: a repair that is under way may create the table
            if await self._writer.exists():
                try:
                    await self._writer.apply(f"delete table {self._desired.table}\n")
                except WriteError:
                    metrics.NFTABLES_CLEANUP_FAILURES.labels(self._label).inc()
                    raise
        self._described = None

    async def _rewrite(self, text: str, since: bytes) -> None:
        started = self._clock.monotonic()
        self._needs_comparison = True
        async with self._drift.writing(1, since):
            try:
                await self._writer.apply(text)
            except WriteError as error:
                self._failures.inc()
                if isinstance(error, UnansweredError):
                    raise
                # A table that cannot be led to the right state (its maps have other types, it changed since it was
                # read) is replaced, in one transaction.
                table, desired = self._desired.table, copy.copy(self._desired)
                log.warning("replacing table %s: %s", table, error)
                text = await self._compute(lambda: reconcile(desired, Contents()), Contents())
                await self._writer.apply(f"add table {table}\ndelete table {table}\n{text}")
        self._described, self._needs_comparison = None, False
        metrics.FULL_SYNC.labels(self._label).observe(self._drift.finished(started))


def _differing(actual: Contents, elements: Elements, described: Mapping[str, Sequence[Any]] | None) -> set[str]:
    """Return the sets, maps and chains that are not as desired."""
    # In Python: other threads wait while a set operator compares half a million elements.
    existing = actual.elements
    wrong = {element[0] for element, data in existing.items() if elements.get(element) != data}
    wrong |= {element[0] for element in elements if element not in existing}
    if described is not None:
        names = actual.rules.keys() | described.keys()
        wrong |= {name for name in names if actual.rules.get(name) != described.get(name)}
    return wrong
