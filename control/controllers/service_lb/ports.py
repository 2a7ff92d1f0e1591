"""Whose is a port of the nodes' addresses? First come, first served.

All nodes' addresses serve all load balancers, so a port and protocol can belong to one Service, whichever nodes serve it at
the moment. Ports on which the nodes themselves listen belong to nobody: a Service there would take away the node's own
traffic, ssh and the API server included. Node ports of other Services are left to them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from control.controllers.service_lb.plan import NoLoadBalancer
from kube.api import core_v1

Port = tuple[str, int]
"""(protocol, number)."""

NODES_OWN: Mapping[Port, str] = {
    ("TCP", 22): "ssh",
    ("TCP", 2379): "etcd",
    ("TCP", 2380): "etcd",
    ("TCP", 6443): "the API server",
    ("TCP", 10248): "the kubelet",
    ("TCP", 10249): "the service proxy",
    ("TCP", 10250): "the kubelet",
    ("TCP", 10256): "the service proxy",
    ("TCP", 10257): "the controller manager",
    ("TCP", 10259): "the scheduler",
    ("UDP", 8472): "the pod network",
}


def ports_of(service: core_v1.Service) -> list[Port]:
    return [(port.protocol or "TCP", port.port) for port in service.spec.ports]


def node_ports_of(service: core_v1.Service) -> list[Port]:
    """Return the ports that a Service has on every node, beside those of a load balancer."""
    found = [(port.protocol or "TCP", port.node_port) for port in service.spec.ports if port.node_port]
    if service.spec.health_check_node_port:
        found.append(("TCP", service.spec.health_check_node_port))
    return found


class PortLedger:
    """Who holds which port."""

    def __init__(self, reserved: Mapping[Port, str] = NODES_OWN) -> None:
        self._reserved = dict(reserved)
        self._holder: dict[Port, str] = {}
        self._held: dict[str, frozenset[Port]] = {}

    def reserve(self, port: Port, whose: str) -> None:
        """Keep a port for the nodes themselves."""
        self._reserved.setdefault(port, whose)

    def claim(self, key: str, ports: Iterable[Port], others: Mapping[Port, Collection[str]]) -> None:
        """Let a Service hold these ports and no others, or none; NoLoadBalancer names the port that it cannot have.

        `others` are the Services that have a node port of that number.
        """
        self.release(key)
        wanted = frozenset(ports)
        for port in sorted(wanted):
            text = f"port {port[1]}/{port[0]}"
            if port in self._reserved:
                raise NoLoadBalancer(f"{text} is that of {self._reserved[port]} on the nodes")
            if port in self._holder:
                raise NoLoadBalancer(f"{text} is already used by Service {self._holder[port]}")
            if owners := sorted(set(others.get(port, ())) - {key}):
                raise NoLoadBalancer(f"{text} is the node port of Service {owners[0]}")
        self._held[key] = wanted
        self._holder.update(dict.fromkeys(wanted, key))

    def release(self, key: str) -> frozenset[Port]:
        """Take all ports from a Service; return them."""
        ports = self._held.pop(key, frozenset())
        for port in ports:
            del self._holder[port]
        return ports
