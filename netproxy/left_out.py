"""Services that this node does not serve, and why: each is logged and reported once, and counted while it lasts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from netproxy import metrics

log = logging.getLogger(__name__)
LIMIT = "limit"
"""The reason of Services that cost too much; the others' are the family whose rules the kernel refuses."""


class LeftOut:
    """Who is left out for which reasons. `report` takes a Service's key and why it is left out."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._reasons: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, key: str, reason: str, why: str, details: str = "") -> None:
        """Take in that a Service is left out; say so where it is new. `details` are for the log alone."""
        reasons = self._reasons.setdefault(key, set())
        if reason not in reasons:
            reasons.add(reason)
            self._count(reason, 1)
            log.error("Service %s is not served: %s%s", key, why, f": {details}" if details else "")
            self._report(key, why)

    def remove(self, key: str, reason: str) -> None:
        """Take in that nothing of that reason keeps a Service out any longer."""
        reasons = self._reasons.get(key, set())
        if reason in reasons:
            reasons.remove(reason)
            self._count(reason, -1)
            log.info("Service %s is no longer left out (%s)", key, reason)
            if not reasons:
                del self._reasons[key]

    def _count(self, reason: str, by: int) -> None:
        self._counts[reason] += by
        metrics.SERVICES_LEFT_OUT.labels(reason).set(self._counts[reason])
