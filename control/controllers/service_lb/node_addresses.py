"""Addresses of the nodes that can take traffic; some fields of a Node's status are valid at its own address only.

They are derived anew from the Nodes after a change and kept until the next one: nothing that a Node said before counts.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Sequence

from control.controllers.nodes.health import readiness
from control.controllers.service_lb import plan
from control.controllers.service_lb.addition_limit import AdditionLimit
from control.controllers.service_lb.believed_addresses import BelievedAddresses, IPRanges
from control.controllers.service_lb.plan import NodeAddress
from kube.api import core_v1, networking_v1
from kube.clock import SYSTEM, Clock
from kube.informer import Informer
from kube.ip_addresses import Address
from kube.object_names import name_of

log = logging.getLogger(__name__)


def kubelet_port(node: core_v1.Node) -> int:
    """Return the port of a node's kubelet, 0 if its status names none."""
    daemons = node.status.daemon_endpoints
    return daemons.kubelet_endpoint.port if daemons is not None and daemons.kubelet_endpoint is not None else 0


def facts(node: core_v1.Node) -> tuple[object, ...]:
    """Return what of a Node the addresses are derived from."""
    spec = node.spec
    return (
        readiness(node),
        plan.serves(node),
        plan.addresses_of(node),
        kubelet_port(node),
        spec.pod_cidr,
        spec.pod_cidrs,
    )


class NodeAddresses:
    """Addresses of all nodes. `service_ranges` are followed; `pod_ranges` are those of the cluster."""

    def __init__(
        self,
        nodes: Informer[core_v1.Node],
        service_ranges: Informer[networking_v1.ServiceCIDR] | None = None,
        pod_ranges: Collection[str] = (),
        clock: Clock = SYSTEM,
    ) -> None:
        self._nodes, self._service_ranges, self._clock = nodes, service_ranges, clock
        self._pods = IPRanges(pod_ranges)
        self._limit = AdditionLimit()
        self._by_node: dict[str, frozenset[Address]] = {}
        self._serving: tuple[NodeAddress, ...] = ()
        self._until = -math.inf
        """Time until which `_serving` is valid if nothing changes."""
        self._refused: dict[str, list[str]] = {}

    def changed(self) -> None:
        """Derive them anew when they are next requested."""
        self._until = -math.inf

    def serving(self) -> Sequence[NodeAddress]:
        """Return the addresses of the nodes that can take traffic, each once, in their order."""
        if self._clock.monotonic() >= self._until:
            self._derive()
        return self._serving

    def valid_seconds(self) -> float | None:
        """Return the seconds after which an address is added that `serving` left out; None if it left none out."""
        return None if self._until == math.inf else max(self._until - self._clock.monotonic(), 0.0)

    def _derive(self) -> None:
        now = self._clock.monotonic()
        self._until = math.inf
        self._limit.forget_old(now)
        before, self._by_node = self._by_node, {}
        found: list[tuple[Address, NodeAddress]] = []
        refused: dict[str, list[str]] = {}
        ranges = self._service_ranges.list() if self._service_ranges is not None else []
        believed = BelievedAddresses(IPRanges(cidr for each in ranges for cidr in each.spec.cidrs), self._pods)
        for node in sorted(self._nodes.list(), key=_age):
            name = name_of(node)
            addresses, reasons = believed.add(node)
            if reasons:
                refused[name] = reasons
                if self._refused.get(name) != reasons:
                    log.warning("load balancers do not use an address of node %s: %s", name, "; ".join(reasons))
            if addresses and plan.serves(node):
                allowed = self._by_node[name] = self._allowed(name, addresses, before.get(name, frozenset()), now)
                found += [(each, NodeAddress(str(each), name, kubelet_port(node))) for each in allowed]
        self._refused = refused
        self._serving = tuple(address for _, address in sorted(found, key=lambda each: (each[0].version, int(each[0]))))

    def _allowed(
        self, name: str, addresses: list[Address], before: frozenset[Address], now: float
    ) -> frozenset[Address]:
        """Return a node's addresses without those that are added later."""
        wanted = frozenset(addresses)
        if wanted <= before or not (seconds := self._limit.wait(name, now)):
            return wanted
        self._until = min(self._until, now + seconds)
        return wanted & before


def _age(node: core_v1.Node) -> tuple[str, str]:
    return node.metadata.creation_timestamp or "", name_of(node)
