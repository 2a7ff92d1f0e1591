"""Limits of what Services may cost a node: the API limits neither ports, addresses nor endpoints, and rules multiply them.

Whoever may write Services of a namespace writes them for all nodes. A body of 1.5 MB has 15 000 ports or 50 000 addresses.
Upstream writes whatever comes of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube.api import core_v1
from netproxy.endpoints import SlicePorts
from netproxy.errors import ServiceError

MAX_RULES = 100_000
"""Pairs of a port's address and an endpoint, of one Service and family: so many are written in some seconds. A Service of three
ports that a node port and a load balancer lead to may have 11 000 endpoints."""
MAX_CHAIN_RULES = 20_000
"""Rules of iptables: iptables-nft writes so many in about two seconds and compares them in one, and all other Services wait
meanwhile. A Service of three ports may have 2200 endpoints."""
FREE_RULES = 100
"""Rules of each Service that do not count for its namespace: all Services of three ports with ten endpoints each are served."""
MAX_IN_NAMESPACE = 300_000
"""Rules of the Services of one namespace, each without its first `FREE_RULES`: at least three of the largest."""
MAX_CHAIN_RULES_IN_NAMESPACE = 100_000
"""The same in the iptables mode, where a change costs what there is: beside 350 000 rules one of a small Service takes 0.4 s,
and one of 20 000 rules five."""
AFFINITY_RULES = 30
"""Rules as which an endpoint of a port counts in the nftables mode if it has session affinity. At each later change of any
Service nft reads all chains: those of the 10 000 endpoints that a namespace may have take 0.1 s, and 2 s when a node starts."""
DEFAULT_AFFINITY_SECONDS = 10800
TIMEOUT_RULES = 3_000
"""Rules as which another timeout than upstream's default counts: the kernel takes 2 MiB for the clients of each."""
RANGE_SET_RULES = 30
"""Rules as which each prefix length of source ranges may count in the nftables mode: it has a set of its own."""


@dataclass(frozen=True, slots=True)
class ModeCost:
    """The number of rules that a proxy mode writes for a Service, and their limits."""

    max_rules: int = MAX_RULES
    endpoint_rules: int = 0
    """Rules that an endpoint of a port takes, at however many addresses the port is served; 0: one at each."""
    ranges_multiply: bool = False
    """True if each source range of a load balancer is written for each of its ports."""
    max_in_namespace: int = MAX_IN_NAMESPACE
    affinity_rules: int = 0
    """Rules that an endpoint of a port with session affinity counts as, and the port itself: they have chains of their own."""
    range_set_rules: int = 0
    """Rules as which a set of source ranges counts."""

    def of_range_sets(self, family: int, ranges: int) -> int:
        """Return as how many rules the sets of a Service's source ranges count; there is at most one for each prefix length."""
        return self.range_set_rules * min(ranges, 32 if family == 4 else 128)

    def of_port(self, addresses: int, endpoints: int) -> int:
        """Return how many rules a port takes."""
        if self.endpoint_rules:
            return addresses + self.endpoint_rules * endpoints
        return addresses * max(1, endpoints)

    def of_affinity(self, endpoints: int, seconds: int) -> int:
        """Return as how many rules a port's session affinity counts."""
        return self.affinity_rules * (1 + endpoints) if seconds and endpoints else 0

    def of_timeout(self, seconds: int) -> int:
        """Return as how many rules a Service's timeout of session affinity counts, for which its namespace may have no set."""
        return TIMEOUT_RULES if self.affinity_rules and seconds not in (0, DEFAULT_AFFINITY_SECONDS) else 0


CHAINS = ModeCost(MAX_CHAIN_RULES, endpoint_rules=3, max_in_namespace=MAX_CHAIN_RULES_IN_NAMESPACE)
"""The iptables mode: one rule leads to an endpoint, two are in its chain."""
PAIRS = ModeCost(affinity_rules=AFFINITY_RULES, range_set_rules=RANGE_SET_RULES)
"""The nftables mode."""
VIRTUAL_SERVERS = ModeCost(ranges_multiply=True)
"""The IPVS mode: its sets know no groups of ports."""


def check_cost(
    ports: Sequence[core_v1.ServicePort],
    family: int,
    addresses: int,
    balanced: tuple[int, int],
    slice_ports: SlicePorts,
    cost: ModeCost = PAIRS,
    affinity_seconds: int = 0,
) -> None:
    """Raise ServiceError for ports that would need too many rules; nothing is multiplied out for that.

    Each port is served at `addresses`, node ports counted; `balanced` is how many of those are a load balancer's, and to how
    many source ranges they are open.
    """
    kind, sizes = "IPv4" if family == 4 else "IPv6", dict[tuple[str, str], int]()
    balancers, ranges = balanced
    of_sets = cost.of_timeout(affinity_seconds) + cost.of_range_sets(family, ranges)
    count, of_port = (of_sets, balancers * ranges) if cost.ranges_multiply else (of_sets + ranges, 0)
    for port in ports:
        key = port.name or "", port.protocol or "TCP"
        if key not in sizes:
            sizes[key] = _endpoints(slice_ports, key, kind)
        count += cost.of_port(addresses, sizes[key]) + of_port + cost.of_affinity(sizes[key], affinity_seconds)
    if count > cost.max_rules:
        raise ServiceError(
            f"its ports, addresses and endpoints multiply to {count} rules of {kind}; {cost.max_rules} are written at most"
        )


def _endpoints(slice_ports: SlicePorts, key: tuple[str, str], kind: str) -> int:
    """Return how many endpoints slices name for a port, ready or not."""
    return sum(
        len(slice_.endpoints) * len(numbers)
        for slice_, numbers in slice_ports.get(key, ())
        if slice_.address_type == kind
    )
