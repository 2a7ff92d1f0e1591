"""Limits what the Services of one namespace may cost each node together. No I/O.

Each may be within its own limit (service_limits.py): twenty of those block every later change of anybody's Services for
seconds. The dearest of a namespace are left out until the others are within the limit, and retried when there is room.
A small Service counts for nothing, so a namespace may have any number of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from netproxy.model import ServicePort
from netproxy.namespace_costs import NamespaceCosts
from netproxy.service_limits import FREE_RULES, ModeCost

RETRY = 10.0
"""Seconds between tries of Services that were left out, in each namespace: one at a time."""


def rules_of(ports: Iterable[ServicePort], cost: ModeCost) -> int:
    """Return how many rules planned ports need in the family where they need most, about as a proxy mode writes them.

    What has chains or sets of its own counts from the first one.
    """
    rules: Counter[int] = Counter()
    own: Counter[int] = Counter()
    sets: dict[int, int] = {}
    ranges: dict[int, int] = {}
    for port in ports:
        addresses = 2 + len(port.external_ips) + len(port.load_balancer_ips)
        endpoints = max(len(port.endpoints), len(port.local_endpoints))
        rules[port.family] += cost.of_port(addresses, endpoints)
        own[port.family] += cost.of_affinity(endpoints, port.affinity_seconds)
        sets[port.family] = cost.of_timeout(port.affinity_seconds)
        if port.load_balancer_ips:
            sets[port.family] += cost.of_range_sets(port.family, len(port.source_ranges))
        if cost.ranges_multiply:
            rules[port.family] += len(port.load_balancer_ips) * len(port.source_ranges)
        else:
            ranges[port.family] = len(port.source_ranges)
    rules.update(ranges)
    own.update(sets)
    return max(
        (max(count, FREE_RULES) + own[family] if own[family] else count for family, count in rules.items()),
        default=0,
    )


class NamespaceBudget:
    """The costs of Services by namespace: of each its rules above `FREE_RULES`, all of a namespace `most` together."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._costs: dict[str, int] = {}
        self._namespace_costs = NamespaceCosts()
        self._unserved: dict[str, dict[str, int]] = {}
        """Costs of Services that are left out, by namespace."""
        self._tried_at: dict[str, float] = {}
        self.why = (
            f"the Services of its namespace take more than {most} rules, without the first {FREE_RULES} of each; "
            "it is one of those that take most"
        )

    def put(self, key: str, rules: int) -> list[str]:
        """Store the cost of a Service, 0 if it is not served; return those not to serve, perhaps this one."""
        namespace = key.partition("/")[0]
        self._serve(key)
        self._change(key, max(0, rules - FREE_RULES))
        found: list[str] = []
        while self._namespace_costs.total(namespace) > self._most:
            largest = self._namespace_costs.largest(namespace)
            self._unserved.setdefault(namespace, {})[largest] = self._costs[largest]
            self._change(largest, 0)
            found.append(largest)
        return found

    def retries(self, now: float) -> list[str]:
        """Return unserved Services for which there is room now, one of a namespace each `RETRY` seconds."""
        found: list[str] = []
        for namespace, costs in self._unserved.items():
            room = self._most - self._namespace_costs.total(namespace)
            key = next((key for key, cost in costs.items() if cost <= room), "")
            if key and now - self._tried_at.get(namespace, float("-inf")) >= RETRY:
                self._tried_at[namespace] = now
                found.append(key)
        return found

    def _serve(self, key: str) -> None:
        namespace = key.partition("/")[0]
        costs = self._unserved.get(namespace, {})
        if costs.pop(key, None) is not None and not costs:
            del self._unserved[namespace]
            self._tried_at.pop(namespace, None)

    def _change(self, key: str, cost: int) -> None:
        self._namespace_costs.change(key, self._costs.pop(key, 0), cost)
        if cost:
            self._costs[key] = cost
