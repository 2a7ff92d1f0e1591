"""Ports of the nodes that the load balancer could not give to a Gateway or to the Ingresses, and what else has them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from control.controllers.gateway.plan import missing_ports
from control.controllers.service_lb import host_ports, plan, port_claims, waiting
from control.controllers.service_lb.port_records import granted_ports, had_ports
from control.controllers.service_lb.ports import shown
from kube.api import core_v1
from kube.gateway.names import INGRESS, NAMESPACE, OWNER
from kube.informer import Informer
from kube.object_names import key_of, name_of, namespace_of


@dataclass(frozen=True, slots=True)
class MissingPorts:
    """Ports that a Service does not have at addresses of nodes, at one moment."""

    ports: frozenset[int] = frozenset()
    has_others: bool = True
    """True if the Service has other ports there, False if it is at its cluster IPs only."""
    user: Callable[[int, str], str] = lambda port, to: ""
    """Returns what has a port, for whoever reads the events of an object."""
    _users: dict[tuple[int, str], str] = field(default_factory=dict)
    """Users by ports and namespaces of the readers: there may be thousands of Ingresses."""

    def problems(self, ports: Mapping[int, str], to: str) -> list[str]:
        """Return what an object with a key lacks of its ports, which have names."""
        return [each for port in sorted(self.ports & ports.keys()) for each in self._problem(port, ports[port], to)]

    def _problem(self, port: int, name: str, to: str) -> list[str]:
        known = port, to.partition("/")[0]
        if (user := self._users.get(known)) is None:
            user = self._users[known] = self.user(port, to)
        if not self.has_others:  # there may be no load balancer, or no node
            return [f"{name} is served at the cluster IP only: port {port} of the nodes is used by {user}"] * bool(user)
        reason = (
            f"port {port} of the nodes is used by {user}" if user else f"the load balancer does not have port {port}"
        )
        return [f"{name} is not served: {reason}"]


class PortUsers:
    """Services and pods by the ports of the nodes that they have, in the indexes of the service load balancer."""

    def __init__(self, services: Informer[core_v1.Service], pods: Informer[core_v1.Pod]) -> None:
        waiting.add_index(services)
        port_claims.add_indexes(services, pods)
        self._services, self._pods = services, pods

    def missing(self, service: core_v1.Service, now: datetime) -> MissingPorts:
        """Return the ports that a Service does not have at addresses of nodes."""
        name = name_of(service)
        return MissingPorts(
            missing_ports(service, now), bool(plan.given(service)), lambda port, to: self.user(port, name, to)
        )

    def user(self, port: int, own: str, to: str) -> str:
        """Return what has a TCP port, "" if nothing has: another Service than `own`, or a pod.

        The text is for whoever reads the events of the object with the key `to`.
        """
        value = f"TCP/{port}"
        for service in self._services.by_index(waiting.PORT, value):
            if name_of(service) == own and namespace_of(service) == NAMESPACE:
                continue
            if had_ports(service) and ("TCP", port) in granted_ports(service):
                return _shown(service, to)
        for service in self._services.by_index(port_claims.NODE_PORT, value):
            return f"{shown('Service', key_of(service), to)}, as a node port"
        for pod in self._pods.by_index(host_ports.HOST_PORT, value):
            return f"{shown('Pod', key_of(pod), to)}, as a host port"
        return ""


def _shown(service: core_v1.Service, to: str) -> str:
    """Name a Service; that of a Gateway or of the Ingresses by what it was generated for."""
    owner = service.metadata.annotations.get(OWNER, "")
    if namespace_of(service) != NAMESPACE or not owner:
        return shown("Service", key_of(service), to)
    return "the Ingresses" if owner == INGRESS else shown("Gateway", owner, to)
