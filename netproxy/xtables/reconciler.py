"""Keeps the chains of one IP family at their desired state with iptables-restore.

The shadow's text is in the form in which iptables-save prints rules, so what was written and what is read compare as strings.
"""

from __future__ import annotations

import copy
import logging
from functools import partial

from kube.clock import Clock
from netproxy import large_changes, metrics
from netproxy.errors import WriteError
from netproxy.reconciler import TextReconciler
from netproxy.settings import FixedChainSettings
from netproxy.xtables import restore_text
from netproxy.xtables.shadow import Shadow, cleanup_text
from netproxy.xtables.writer import Writer

log = logging.getLogger(__name__)


class ChainReconciler(TextReconciler):
    """Reconciles the kernel with a shadow. Deltas are texts for iptables-restore."""

    def __init__(self, writer: Writer, shadow: Shadow, clock: Clock, period: float) -> None:
        """`period` is the seconds between comparisons where the writer's fingerprint can miss a change."""
        # Only a count of transactions shows every change, and that what was killed in a later table wrote those before.
        checked = None if writer.fingerprint_is_exact else period
        super().__init__(writer, shadow.settings.family, metrics.PARTIAL_RESTORE_FAILURES, clock, checked)
        self._writer, self._shadow = writer, shadow

    async def _apply(self, delta: str) -> None:
        async with self._drift.writing(restore_text.transactions(delta)):
            await self._writer.apply(delta)
        for table, count in restore_text.lines_by_table(delta).items():
            metrics.IPTABLES_LAST.labels(table, self._label).set(count)

    async def change_fixed_chains(self, settings: FixedChainSettings) -> None:
        """Change the settings of the fixed chains, and the chains with them."""
        if settings != self._shadow.settings:
            text = self._shadow.change_settings(settings)
            await (self.take_over() if text is None else self.write(text))

    async def take_over(self) -> None:
        await self._compare(repair=False)

    async def verify(self) -> bool:
        """Repair what others changed; return whether anything had to be repaired."""
        return self._drift.comparison_due and await self._compare(repair=True)

    async def _compare(self, *, repair: bool) -> bool:
        """Read everything and write the difference; return whether there was any. A repair gives way to other writes."""
        while True:
            comparison = await self._drift.begin_comparison()
            actual, shadow = await self._writer.read(), copy.copy(self._shadow)
            size = sum(shadow.rule_counts.values()) + sum(map(len, actual.values()))
            text = await large_changes.compute_sized(size, partial(shadow.reconcile, actual))
            if self._drift.is_valid(comparison):
                break
            if repair:
                self._drift.invalidated()
                return False
        if text:
            try:
                async with self._drift.writing(restore_text.transactions(text), since=comparison.fingerprint):
                    await self._writer.apply(text)
            except WriteError:
                self._needs_comparison = True
                metrics.RESTORE_FAILURES.labels(self._label).inc()
                raise
            if repair:
                metrics.REPAIRS.inc()
                log.warning("repaired rules that other programs changed, in %s", restore_text.chains_named(text))
        else:
            self._drift.found_equal(comparison)
        self._needs_comparison = False
        metrics.FULL_SYNC.labels(self._label).observe(self._drift.finished(comparison.started))
        return bool(text)

    async def cleanup(self) -> None:
        """Remove all chains of every mode, whoever wrote them."""
        text = cleanup_text(await self._writer.read())
        if text:
            await self._writer.apply(text)
