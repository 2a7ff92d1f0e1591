"""Eviction thresholds: hard ones are met at once, soft ones after a grace period, both until the minimum reclaim is free.

Pure, but for state between calls: since when each threshold is met, and when each condition was last observed. The rules are
upstream's (kubelet/eviction/helpers.go): a threshold that was met stays so until the signal is better than threshold plus
minimum reclaim, and a node condition lasts for the transition period after it was last observed, so that neither flaps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.eviction.signals import CONDITIONS, Reading
from agent.node.status import threshold
from kube import quantity

MEMORY, ALLOCATABLE = "memory.available", "allocatableMemory.available"


@dataclass(frozen=True, slots=True)
class Threshold:
    """`amount` and `reclaim` are quantities or percentages of the capacity; `grace` seconds, None for a hard one."""

    signal: str
    amount: str
    grace: float | None = None
    reclaim: str = "0"

    @property
    def hard(self) -> bool:
        return self.grace is None

    def limit(self, reading: Reading) -> int:
        """Return the amount below which the threshold is met."""
        return threshold(self.amount, reading.capacity)

    def met(self, reading: Reading, *, reclaiming: bool = False) -> bool:
        """Return whether the threshold is met; `reclaiming`: or the minimum reclaim is not free yet."""
        more = threshold(self.reclaim, reading.capacity) if reclaiming else 0
        return reading.available < self.limit(reading) + more


def thresholds(
    hard: Mapping[str, str],
    soft: Mapping[str, str],
    grace: Mapping[str, float],
    reclaim: Mapping[str, str],
    *,
    pods_bounded: bool = False,
) -> tuple[Threshold, ...]:
    """Put the configuration's four maps together; raise ValueError for what does not fit.

    `pods_bounded`: pods have a limit together (enforceNodeAllocatable), and the hard threshold of memory holds for that too.
    """
    for name, given in (("evictionHard", hard), ("evictionSoft", soft), ("evictionMinimumReclaim", reclaim)):
        for signal in given:
            if signal not in CONDITIONS:
                raise ValueError(f"{name}: {signal} is not a signal: {', '.join(CONDITIONS)}")
            _check(f"{name}[{signal}]", given[signal])
    for signal in soft:
        if signal not in grace:
            raise ValueError(f"evictionSoftGracePeriod: missing for the soft threshold of {signal}")
    for signal in grace:
        if signal not in soft:
            raise ValueError(f"evictionSoftGracePeriod: {signal} has no soft threshold")
    made = [Threshold(signal, amount, None, reclaim.get(signal, "0")) for signal, amount in hard.items()]
    made += [replace(one, signal=ALLOCATABLE) for one in made if pods_bounded and one.signal == MEMORY]
    made += [Threshold(signal, amount, grace[signal], reclaim.get(signal, "0")) for signal, amount in soft.items()]
    # "0" and "0%" switch a threshold off.
    return tuple(one for one in made if one.amount.rstrip("%") not in ("0", "0.0"))


def _check(name: str, amount: str) -> None:
    share = amount.endswith("%")
    try:
        number = float(amount[:-1]) if share else quantity.parse(amount)
    except ValueError as error:
        raise ValueError(f"{name}: {amount!r} is neither a quantity nor a percentage") from error
    if not 0 <= number <= (100 if share else math.inf):
        raise ValueError(f"{name}: {amount} is {'not between 0% and 100%' if share else 'negative'}")


class ThresholdTracker:
    """Tracks which thresholds are met, and since when."""

    def __init__(self, configured: Sequence[Threshold], transition: float) -> None:
        self._configured, self._transition = tuple(configured), transition
        self._since: dict[Threshold, float] = {}
        self._seen: dict[str, float] = {}

    def update(self, readings: Mapping[str, Reading], now: float) -> list[Threshold]:
        """Store readings; return the thresholds to act on, memory first, hard before soft."""
        met: dict[Threshold, float] = {}
        for one in self._configured:
            reading = readings.get(one.signal)
            if reading is not None and one.met(reading, reclaiming=one in self._since):
                met[one] = self._since.get(one, now)
                self._seen[CONDITIONS[one.signal]] = now
        self._since = met
        to_act_on = [one for one, since in met.items() if one.grace is None or now - since >= one.grace]
        return sorted(to_act_on, key=lambda one: (one.signal not in (MEMORY, ALLOCATABLE), not one.hard, one.signal))

    def conditions(self, now: float) -> dict[str, bool]:
        """Return the node conditions that were ever seen, and whether they still hold."""
        return {name: now - at < self._transition for name, at in self._seen.items()}
