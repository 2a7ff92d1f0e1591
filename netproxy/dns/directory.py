"""The zone's view of the informers' copies: look-ups by key and by address, through informer indexes."""

from __future__ import annotations

from collections.abc import Iterable

from kube.api import core_v1, discovery_v1
from kube.informer import Informer, by_namespace
from netproxy.dns.endpoints import dashed
from netproxy.dns.namespaces import Namespaces
from netproxy.model import owner_of
from netproxy.policy.objects import FINISHED, SlimPod


class InformerDirectory:
    """Answers `Directory` from the proxy's own informers."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        pods: Informer[SlimPod] | None = None,
        namespaces: Namespaces | None = None,
    ) -> None:
        self._namespaces = namespaces
        self._services, self._slices, self._pods = services, slices, pods
        if pods is not None:
            pods.add_index("address", _pod_addresses)
        services.add_index("namespace", by_namespace)
        services.add_index("cluster-ip", _cluster_ips)
        slices.add_index("service", _owner)
        slices.add_index("host", _hosts)
        slices.add_index("address", _addresses)

    def service(self, key: str) -> core_v1.Service | None:
        return self._services.get(key)

    def slices(self, key: str) -> Iterable[discovery_v1.EndpointSlice]:
        return self._slices.by_index("service", key)

    def slices_by_host(self, key: str, label: str) -> Iterable[discovery_v1.EndpointSlice]:
        """Return the slices of a Service in which an endpoint may have this label: its hostname, or its address."""
        found = [*self._slices.by_index("host", f"{key}/{label}")]
        for ip in (label.replace("-", "."), label.replace("-", ":")):
            found += [slice_ for slice_ in self._slices.by_index("address", ip) if owner_of(slice_) == key]
        return {id(slice_): slice_ for slice_ in found}.values()

    def has_namespace(self, namespace: str) -> bool | None:
        """Tell whether a namespace exists; None where it has no Service and more is not known."""
        known = self._namespaces.known(namespace) if self._namespaces is not None else None
        if known is None and self._services.by_index("namespace", namespace):
            return True
        return known

    def service_by_ip(self, ip: str) -> core_v1.Service | None:
        return next(iter(self._services.by_index("cluster-ip", ip)), None)

    def slices_by_ip(self, ip: str) -> Iterable[discovery_v1.EndpointSlice]:
        return self._slices.by_index("address", ip)

    def has_pod(self, namespace: str, ip: str) -> bool:
        """Tell whether a pod of the namespace has the address; only for a directory that knows pods."""
        found = self._pods.by_index("address", ip) if self._pods is not None else ()
        return any(pod.metadata.namespace == namespace for pod in found)


def _pod_addresses(pod: SlimPod) -> Iterable[str]:
    return () if pod.status.phase in FINISHED else {each.ip for each in pod.status.pod_ips}


def _cluster_ips(service: core_v1.Service) -> Iterable[str]:
    return [ip for ip in service.spec.cluster_ips or [service.spec.cluster_ip or ""] if ip and ip != "None"]


def _owner(slice_: discovery_v1.EndpointSlice) -> Iterable[str]:
    owner = owner_of(slice_)
    return (owner,) if owner else ()


def _hosts(slice_: discovery_v1.EndpointSlice) -> Iterable[str]:
    """Return the labels that the index of addresses does not lead to."""
    owner = owner_of(slice_)
    named = {endpoint.hostname.lower() for endpoint in slice_.endpoints if endpoint.hostname}
    others = {dashed(ip).lower() for ip in _addresses(slice_) if ip != ip.lower()}
    return [f"{owner}/{label}" for label in named | others]


def _addresses(slice_: discovery_v1.EndpointSlice) -> Iterable[str]:
    return {address for endpoint in slice_.endpoints for address in endpoint.addresses}
