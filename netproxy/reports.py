"""The metrics and the log line of a write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from netproxy import metrics
from netproxy.model import ServicePort

MAX_NAMED = 5
"""Services that one line names, and ports of each."""


def count_without_local(old: Iterable[tuple[ServicePort, ...]], new: Iterable[tuple[ServicePort, ...]]) -> None:
    """Count ports whose packets are dropped here because only other nodes have endpoints."""
    counts: Counter[tuple[str, str]] = Counter()
    for sign, services in ((-1, old), (1, new)):
        for port in (port for ports in services for port in ports):
            if port.has_endpoints_anywhere and not port.local_endpoints:
                family = metrics.family_label(port.family)
                if port.internal_local:
                    counts["internal", family] += sign
                if port.external_local:
                    counts["external", family] += sign
    for labels, count in counts.items():
        metrics.NO_LOCAL_ENDPOINTS.labels(*labels).inc(count)


def describe(changed: Mapping[str, tuple[ServicePort, ...]], family: int) -> str:
    """Describe a change: Services, and how many endpoints each of their ports has."""
    words = []
    for key, ports in list(changed.items())[:MAX_NAMED]:
        ours = [port for port in ports if port.family == family]
        counts = [
            f"{port.name.port or port.port}: {len({*port.endpoints, *port.local_endpoints})}"
            for port in ours[:MAX_NAMED]
        ]
        more = f" and {len(ours) - MAX_NAMED} ports more" if len(ours) > MAX_NAMED else ""
        words.append(f"{key} (endpoints of {', '.join(counts)}{more})" if counts else f"{key} (not served)")
    return "; ".join(words) + (f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else "")
