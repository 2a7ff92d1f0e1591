"""Addresses of the nodes that can take traffic, with what of a Node's status is valid at its own address only.

They are derived anew from the Nodes after a change and kept until the next one: nothing that a Node said before counts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from control.controllers.service_lb import plan
from control.controllers.service_lb.plan import NodeAddress
from kube.api import core_v1
from kube.informer import Informer
from kube.object_names import name_of


def kubelet_port(node: core_v1.Node) -> int:
    """Return the port of a node's kubelet, 0 if its status names none."""
    daemons = node.status.daemon_endpoints
    return daemons.kubelet_endpoint.port if daemons is not None and daemons.kubelet_endpoint is not None else 0


class NodeAddresses:
    """Addresses of all nodes."""

    def __init__(self, nodes: Informer[core_v1.Node]) -> None:
        self._nodes = nodes
        self._serving: tuple[NodeAddress, ...] | None = None

    def changed(self) -> None:
        """Derive them anew when they are next requested."""
        self._serving = None

    def serving(self) -> Sequence[NodeAddress]:
        """Return the addresses of the nodes that can take traffic, each once, in their order."""
        if self._serving is None:
            found: dict[str, NodeAddress] = {}
            for node in self._nodes.list():
                for text in plan.addresses_of(node) if plan.serves(node) else ():
                    found.setdefault(text, NodeAddress(text, name_of(node), kubelet_port(node)))
            self._serving = tuple(sorted(found.values(), key=_order))
        return self._serving


def _order(address: NodeAddress) -> tuple[int, int]:
    parsed = ipaddress.ip_address(address.text)
    return parsed.version, int(parsed)
