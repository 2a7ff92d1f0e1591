"""The write path that all backends share: apply a delta, and compare everything where a delta is not enough.

A delta is made from the shadow and applied without reading the kernel. If the kernel refuses it, the shadow and the kernel may
differ in a way that no later delta settles, so everything is read and the difference is written. If it is not known whether the
kernel took it, that comparison is left to the next write, for it would take longer still.
"""

from __future__ import annotations

import abc
import logging
from typing import Generic, Protocol, TypeVar

from kube.clock import Clock
from netproxy import metrics
from netproxy.drift import DriftDetector
from netproxy.errors import UnansweredError, WriteError
from netproxy.prometheus_metrics import Counter

log = logging.getLogger(__name__)
D = TypeVar("D")


class Reconciler(abc.ABC, Generic[D]):
    """Writes deltas of type `D`; an empty one writes nothing. `failures` counts refused deltas by IP family."""

    def __init__(self, family: int, failures: Counter, clock: Clock) -> None:
        self.family, self._label, self._clock = family, metrics.family_label(family), clock
        self._failures = failures.labels(self._label)
        self._needs_comparison = False
        """True if a write failed, so that the kernel does not hold what deltas are made from."""
        self._delta_unanswered = False

    @abc.abstractmethod
    async def _apply(self, delta: D) -> None:
        """Apply a delta; raises WriteError if the kernel refuses it, UnansweredError if that is unknown."""

    @abc.abstractmethod
    async def take_over(self) -> None:
        """Read everything and write what differs from the desired state: what is right stays in force throughout."""

    async def write(self, delta: D) -> None:
        """Apply a delta, or compare everything where it is refused. Raise WriteError if that fails too.

        Raise UnansweredError without a comparison.
        """
        self._delta_unanswered = False
        if self._needs_comparison:
            await self.take_over()
            return
        if not delta:
            return
        started = self._clock.monotonic()
        try:
            await self._apply(delta)
        except WriteError as error:
            self._failures.inc()
            self._needs_comparison = True
            if isinstance(error, UnansweredError):
                self._delta_unanswered = True
                raise
            log.warning("a change was rejected, comparing all rules with the kernel: %s", error)
            await self.take_over()
            return
        metrics.PARTIAL_SYNC.labels(self._label).observe(self._clock.monotonic() - started)


class TextWriter(Protocol):
    """The interface of writers that apply texts."""

    async def apply(self, text: str) -> None: ...

    def fingerprint(self) -> bytes: ...


class TextReconciler(Reconciler[str]):
    """Writes texts for a program, and knows by the writer's fingerprint whether others changed anything."""

    def __init__(
        self, writer: TextWriter, family: int, failures: Counter, clock: Clock, period: float | None = None
    ) -> None:
        """`period` is the seconds between comparisons where the fingerprint can miss a change, None if it cannot."""
        super().__init__(family, failures, clock)
        self._drift = DriftDetector(writer.fingerprint, clock, period)

    @property
    def verify_needs_lock(self) -> bool:
        """True if the next `verify` must run while nothing is written, for writes invalidated the last comparisons."""
        return self._drift.needs_lock

    def nothing_written(self) -> bool:
        """Return whether an unanswered delta left all as it was; the caller then takes it out of the desired state."""
        if self._delta_unanswered and self._drift.nothing_written():
            self._needs_comparison = self._delta_unanswered = False
            return True
        return False
