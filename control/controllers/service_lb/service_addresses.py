"""Addresses of Services that are not nodes': cluster IPs, external IPs, and addresses that other load balancers gave.

No load balancer gets a cluster IP. At the others a port belongs to the Service that has it; only the port, since anybody who
makes a Service may name the addresses of nodes in externalIPs.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from control.controllers.service_lb import plan
from control.controllers.service_lb.host_ports import HostPorts
from control.controllers.service_lb.plan import NodeAddress
from control.controllers.service_lb.ports import Port, ports_of, shown
from control.controllers.step_counter import StepCounter
from kube.api import core_v1
from kube.informer import Informer
from kube.ip_addresses import canonical
from kube.object_names import key_of

CLUSTER_IP, FOREIGN_IP = "cluster-ip", "foreign-ip"
"""Names of indexes of Services."""


def _cluster_ips(service: core_v1.Service) -> set[str]:
    return set(map(canonical, service.spec.cluster_ips))


def foreign_ips(service: core_v1.Service) -> set[str]:
    """Return the addresses of a Service that neither this cluster nor its nodes gave it."""
    given = plan.given(service) if service.spec.load_balancer_class else []
    return set(map(canonical, [*service.spec.external_ips, *given]))


class ServiceAddresses:
    """Finds Services by their addresses."""

    def __init__(self, services: Informer[core_v1.Service], pods: HostPorts) -> None:
        services.add_index(CLUSTER_IP, _cluster_ips)
        services.add_index(FOREIGN_IP, foreign_ips)
        self._services, self._pods = services, pods

    def is_cluster_ip(self, address: str) -> bool:
        return self._services.has_index(CLUSTER_IP, address)

    async def withheld(
        self, service: core_v1.Service, ports: Set[Port], addresses: Iterable[NodeAddress]
    ) -> dict[str, str]:
        """Return the addresses at which a Service cannot have some ports, and why; it keeps those that it has.

        What a node says of itself, its kubelet's port and its mirror pods, counts at its own address.
        """
        given, counter = set(plan.given(service)), StepCounter()
        found: dict[str, str] = {}
        for each in addresses:
            if each.text in given:
                continue
            if (port := ("TCP", each.kubelet_port)) in ports:
                found[each.text] = f"port {port[1]}/TCP is that of the kubelet on the nodes"
            elif (user := await self._pods.user_on(each.node, ports, service, counter)) is not None:
                (protocol, number), pod = user
                where = f"port {number}/{protocol} at {each.text}"
                found[each.text] = f"{where} is a host port of {shown('Pod', pod, key_of(service))}"
            elif why := await self._user(key_of(service), ports, each.text, counter):
                found[each.text] = why
        return found

    async def _user(self, key: str, ports: Set[Port], address: str, counter: StepCounter) -> str:
        """Return which of a Service's ports another Service has at an address, as text; "" if none."""
        for other in self._services.by_index(FOREIGN_IP, address):
            await counter.count(1 + (len(other.spec.ports) >> 2))
            if key_of(other) != key and (common := ports & set(ports_of(other))):
                number, protocol = min((number, protocol) for protocol, number in common)
                return f"port {number}/{protocol} at {address} is that of {shown('Service', key_of(other), key)}"
        return ""
