"""Look-up of the cluster's objects by key and by address, for the zone, in indexes over informers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from kube.api import core_v1, discovery_v1
from kube.indexer import by_namespace
from kube.informer import Informer
from kube.ip_addresses import canonical
from kube.object_names import key_of
from netproxy.dns.endpoint_index import EndpointIndex, Name
from netproxy.dns.endpoints import BOTH, Host
from netproxy.dns.namespaces import Namespaces
from netproxy.dns.port_index import PortIndex, ServicePorts
from netproxy.slim_objects import FINISHED, SlimPod


class Directory(Protocol):
    """Interface for the zone's look-ups of the cluster's objects."""

    def service(self, key: str) -> core_v1.Service | None: ...
    def hosts(self, key: str, families: Sequence[str] = BOTH, label: str | None = None) -> Iterator[Host]:
        """Iterate over the ready endpoints of a Service, or only those with a label."""

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Iterate over the ports with these labels of SRV names (None: any) of the ready endpoints of a Service."""

    def port_numbers(self, service: core_v1.Service, port: str | None, protocol: str | None) -> Iterable[int]:
        """Iterate over the numbers of a Service's ports with these labels; for a protocol alone one may represent all."""

    def has_namespace(self, namespace: str) -> bool | None: ...
    def service_by_ip(self, ip: str) -> core_v1.Service | None: ...
    def names_of_address(self, address: str) -> Iterable[tuple[str, str]]:
        """Return the names of a ready endpoint's address in headless Services: the Service's key and a label."""

    def has_pod(self, namespace: str, ip: str) -> bool: ...


class InformerDirectory:
    """`Directory` over the proxy's informers."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        pods: Informer[SlimPod] | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._services, self._pods = services, pods
        if pods is not None:
            pods.add_index("address", _pod_addresses)
        services.add_index("namespace", by_namespace)
        services.add_index("cluster-ip", _cluster_ips)
        self._endpoints = EndpointIndex(services, slices)
        self._ports, self._service_ports = PortIndex(slices), ServicePorts(services)

    def service(self, key: str) -> core_v1.Service | None:
        return self._services.get(key)

    def hosts(self, key: str, families: Sequence[str] = BOTH, label: str | None = None) -> Iterator[Host]:
        return self._endpoints.hosts(key, families, label)

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        return self._ports.srv_targets(key, port, protocol)

    def port_numbers(self, service: core_v1.Service, port: str | None, protocol: str | None) -> Iterable[int]:
        return self._service_ports.port_numbers(key_of(service), service.spec.ports, port, protocol)

    def names_of_address(self, address: str) -> Iterable[Name]:
        return self._endpoints.names_of_address(address)

    def has_namespace(self, namespace: str) -> bool | None:
        """Return whether a namespace exists; None if it has no Service and namespaces are not watched."""
        known = self._namespaces.known(namespace) if self._namespaces is not None else None
        if known is None and self._services.has_index("namespace", namespace):
            return True
        return known

    def service_by_ip(self, ip: str) -> core_v1.Service | None:
        return next(iter(self._services.by_index("cluster-ip", ip)), None)

    def has_pod(self, namespace: str, ip: str) -> bool:
        """Return whether a pod of the namespace has the address; only for a directory that knows pods."""
        found = self._pods.by_index("address", ip) if self._pods is not None else ()
        return any(pod.metadata.namespace == namespace for pod in found)


def _pod_addresses(pod: SlimPod) -> Iterable[str]:
    return () if pod.status.phase in FINISHED else {each.ip for each in pod.status.pod_ips}


def _cluster_ips(service: core_v1.Service) -> Iterable[str]:
    return [canonical(ip) for ip in service.spec.cluster_ips or [service.spec.cluster_ip or ""] if ip and ip != "None"]
