"""Assigns ports of the nodes' addresses to Services: first come, first served.

All nodes' addresses serve all load balancers, so a port and protocol can belong to one Service, whichever nodes serve it at
the moment. A Service requests a port of every node, so only a range is assigned: no system ports but those of HTTP, and none
of the ranges of node ports and outgoing connections. Ports on which the nodes' daemons listen, host ports of pods and node
ports of other Services are refused. A node's proxy detects other listeners of its node (netproxy/listeners.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

from control.controllers.service_lb.plan import NoLoadBalancer
from kube.api import core_v1
from kube.port_ranges import LOAD_BALANCERS, NODES_OWN, PortRanges

Port = tuple[str, int]
"""(protocol, number)."""

ALLOWED = PortRanges.parse(LOAD_BALANCERS)


def ports_of(service: core_v1.Service) -> list[Port]:
    return [(port.protocol or "TCP", port.port) for port in service.spec.ports]


def served_ports(service: core_v1.Service) -> list[Port]:
    """Return those of a Service's ports that the addresses in its status have: all of them at one that lists none."""
    balancer, ports = service.status.load_balancer, ports_of(service)
    listed = set[Port]()
    for each in balancer.ingress if balancer is not None else ():
        if not each.ports:
            return ports
        listed.update((port.protocol, port.port) for port in each.ports if not port.error)
    return [port for port in ports if port in listed]


def node_ports_of(service: core_v1.Service) -> list[Port]:
    """Return the ports that a Service has on every node, beside those of a load balancer."""
    found = [(port.protocol or "TCP", port.node_port) for port in service.spec.ports if port.node_port]
    if service.spec.health_check_node_port:
        found.append(("TCP", service.spec.health_check_node_port))
    return found


def shown(kind: str, key: str, to: str) -> str:
    """Name an object in an event of another one: names in other namespaces are not for everybody who reads it."""
    return f"{kind} {key}" if key.partition("/")[0] == to.partition("/")[0] else f"a {kind} in another namespace"


class LoadBalancerPorts:
    """Ports and the Services that have them."""

    def __init__(self, reserved: Mapping[Port, str] = NODES_OWN, allowed: PortRanges = ALLOWED) -> None:
        self._reserved, self._allowed = dict(reserved), allowed
        self._holder: dict[Port, str] = {}
        self._allocated: dict[str, frozenset[Port]] = {}
        self._kept: dict[str, frozenset[Port]] = {}
        """Held ports that were not granted, but that nodes may serve until the status is written."""

    def claim(
        self,
        key: str,
        ports: Iterable[Port],
        others: Mapping[Port, Collection[str]],
        pods: Mapping[Port, Collection[str]] = MappingProxyType({}),
    ) -> frozenset[Port]:
        """Let a Service hold these ports and no others; return those that it held before and does not any more.

        NoLoadBalancer names the port that it cannot have: it then holds what it held, since the nodes serve that until its
        addresses are taken back. `others` are the Services that have a node port of that number, `pods` those of others that
        have it as a host port: they count only for ports that the Service does not hold yet.
        """
        before, wanted = self._allocated.get(key, frozenset()), frozenset(ports)
        for port in sorted(self.new(key, wanted)):
            why = self.refusal(key, port)
            if not why and (owners := sorted(set(others.get(port, ())) - {key})):
                why = f"is the node port of {shown('Service', owners[0], key)}"
            if not why and (users := pods.get(port)):
                why = f"is a host port of {shown('Pod', min(users), key)}"
            if why:
                raise NoLoadBalancer(f"port {port[1]}/{port[0]} {why}")
        if before != wanted or key in self._kept:
            self._hold(key, wanted)
        return before - wanted

    def granted(self, key: str) -> frozenset[Port]:
        """Return the ports that a Service holds because it claimed them."""
        return self._allocated.get(key, frozenset()) - self._kept.get(key, frozenset())

    def new(self, key: str, ports: Iterable[Port]) -> frozenset[Port]:
        """Return those of some ports that a Service has not claimed yet."""
        return frozenset(ports) - self.granted(key)

    def restore(self, key: str, ports: Iterable[Port]) -> None:
        """Let a Service hold ports that it had before this process began, but for those that it cannot have any more."""
        self._hold(key, frozenset(port for port in ports if not self.refusal(key, port)))

    def restrict(self, key: str, ports: Iterable[Port]) -> frozenset[Port]:
        """Take from a Service all ports but those of these that it claimed; return what it loses."""
        before, left = self._allocated.get(key, frozenset()), self.granted(key) & frozenset(ports)
        self._hold(key, left)
        return before - left

    def has_ports(self, key: str) -> bool:
        """Return whether a Service holds any port."""
        return key in self._allocated

    def keep(self, key: str, ports: Iterable[Port]) -> None:
        """Let a Service hold those of these ports that nobody has, in addition to what it holds, without a claim to them."""
        free = frozenset(port for port in ports if port not in self._holder) | self._kept.get(key, frozenset())
        self._hold(key, self._allocated.get(key, frozenset()) | free)
        if free:
            self._kept[key] = free

    def release(self, key: str) -> frozenset[Port]:
        """Take all ports from a Service; return them."""
        ports = self._allocated.pop(key, frozenset())
        self._kept.pop(key, None)
        for port in ports:
            del self._holder[port]
        return ports

    def _hold(self, key: str, ports: frozenset[Port]) -> None:
        self.release(key)
        if ports:
            self._allocated[key] = ports
            self._holder.update(dict.fromkeys(ports, key))

    def refusal(self, key: str, port: Port) -> str:
        """Return why a Service can never have a port, or not as long as another Service has it; "" if it can."""
        if port in self._reserved:
            return f"is that of {self._reserved[port]} on the nodes"
        if port[1] not in self._allowed:
            return f"is not one of the ports of load balancers, {self._allowed}"
        holder = self._holder.get(port, key)
        return f"is already used by {shown('Service', holder, key)}" if holder != key else ""
