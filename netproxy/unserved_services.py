"""Services that this node does not serve: each is logged and reported once, and counted while it lasts."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable

from kube.clock import Clock
from netproxy import metrics
from netproxy.backend import Backend
from netproxy.service_writer import ServiceWriter

log = logging.getLogger(__name__)
LIMIT = "limit"
"""The reason of Services that cost too much; the others' are the family whose rules the kernel refuses."""


class UnservedServices:
    """The reasons why Services are not served. `report` is called with a Service's key and a new reason."""

    def __init__(self, report: Callable[[str, str], None]) -> None:
        self._report = report
        self._reasons: dict[str, set[str]] = {}
        self._counts: Counter[str] = Counter()

    def add(self, key: str, reason: str, why: str, details: str = "") -> None:
        """Add a reason why a Service is not served; report it where it is new. `details` are for the log alone."""
        reasons = self._reasons.setdefault(key, set())
        if reason not in reasons:
            reasons.add(reason)
            self._count(reason, 1)
            log.error("Service %s is not served: %s%s", key, why, f": {details}" if details else "")
            self._report(key, why)

    def remove(self, key: str, reason: str) -> None:
        """Remove a reason why a Service is not served."""
        reasons = self._reasons.get(key, set())
        if reason in reasons:
            reasons.remove(reason)
            self._count(reason, -1)
            log.info("Service %s is served again (%s)", key, reason)
            if not reasons:
                del self._reasons[key]

    def _count(self, reason: str, by: int) -> None:
        self._counts[reason] += by
        metrics.SERVICES_LEFT_OUT.labels(reason).set(self._counts[reason])

    def writer(self, backend: Backend, clock: Clock) -> ServiceWriter:
        """Return a writer for a backend whose refused Services are added here, with the family as the reason."""
        family = metrics.family_label(backend.family)

        def refused(key: str, why: str) -> None:
            self.add(key, family, f"the kernel refuses its {family} rules", why)

        def timed_out(key: str, why: str) -> None:
            self.add(key, family, f"its {family} rules take too long to write", why)

        return ServiceWriter(backend, clock, refused, lambda key: self.remove(key, family), timed_out)
