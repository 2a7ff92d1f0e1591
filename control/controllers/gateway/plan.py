"""The objects that are generated for a Gateway: a Service without a selector, and EndpointSlices of the nodes. Pure.

Both traffic policies are Local: the gateway of the node that a connection reaches serves it, and sees its client's address.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec

from control.controllers.nodes.health import readiness
from control.controllers.service_lb.plan import addresses_of, given
from control.controllers.service_lb.ports import served_ports
from kube.api import core_v1, discovery_v1, meta_v1
from kube.clock import parse_time
from kube.gateway.names import MANAGED_BY, NAMESPACE, OWNER, UID, generated, port_name

SERVICE_NAME, SLICE_MANAGER = "kubernetes.io/service-name", "endpointslice.kubernetes.io/managed-by"
WHERRY = ("app.kubernetes.io/managed-by", "wherry")
MOST_ENDPOINTS = 500
"""Endpoints of a slice; the API allows 1000."""
FAMILIES = ("IPv4", "IPv6")


@dataclass(frozen=True, slots=True)
class Owner:
    """The Gateway that objects are generated for."""

    key: str
    uid: str

    @property
    def name(self) -> str:
        """Name of the Service."""
        return generated(self.uid)

    def metadata(self, name: str, labels: Mapping[str, str]) -> meta_v1.ObjectMeta:
        return meta_v1.ObjectMeta(
            name=name,
            namespace=NAMESPACE,
            labels={UID: self.uid, WHERRY[0]: WHERRY[1], **labels},
            annotations={OWNER: self.key},
        )


def serving(nodes: Iterable[core_v1.Node]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the names and addresses of the nodes that are ready, in the order of their names."""
    return tuple(
        sorted(
            (each.metadata.name or "", addresses_of(each))
            for each in nodes
            if each.metadata.deletion_timestamp is None and readiness(each) == "True"
        )
    )


def service(owner: Owner, ports: Mapping[int, int]) -> core_v1.Service:
    """Return the Service; `ports` maps its ports to those of the nodes' gateways."""
    listed = [
        core_v1.ServicePort(name=port_name(port), port=port, protocol="TCP", target_port=number)
        for port, number in sorted(ports.items())
    ]
    spec = core_v1.ServiceSpec(
        type="LoadBalancer",
        external_traffic_policy="Local",
        internal_traffic_policy="Local",
        allocate_load_balancer_node_ports=False,
        ip_family_policy="PreferDualStack",
        ports=listed,
    )
    return core_v1.Service(metadata=owner.metadata(owner.name, {}), spec=spec)


def updated_service(found: core_v1.Service, wanted: core_v1.Service) -> core_v1.Service | None:
    """Return a stored Service as it should be, None if it is: addresses and what others added to its metadata stay."""
    spec = msgspec.structs.replace(
        found.spec,
        type=wanted.spec.type,
        selector={},
        external_traffic_policy=wanted.spec.external_traffic_policy,
        internal_traffic_policy=wanted.spec.internal_traffic_policy,
        external_ips=[],
        load_balancer_source_ranges=[],
        session_affinity="None",
        session_affinity_config=None,
        ports=_ports(found, wanted),
    )
    metadata = _metadata(found.metadata, wanted.metadata)
    if spec == found.spec and metadata == found.metadata:
        return None
    return msgspec.structs.replace(found, spec=spec, metadata=metadata)


def _ports(found: core_v1.Service, wanted: core_v1.Service) -> list[core_v1.ServicePort]:
    """Return the wanted ports, with the node ports of those that have one."""
    known = {each.port: each.node_port for each in found.spec.ports}
    return [msgspec.structs.replace(each, node_port=known.get(each.port)) for each in wanted.spec.ports]


def _metadata(found: meta_v1.ObjectMeta, wanted: meta_v1.ObjectMeta) -> meta_v1.ObjectMeta:
    return msgspec.structs.replace(
        found, labels={**found.labels, **wanted.labels}, annotations={**found.annotations, **wanted.annotations}
    )


def slices(
    owner: Owner,
    service: core_v1.Service,
    ports: Mapping[int, int],
    nodes: Sequence[tuple[str, tuple[str, ...]]],
) -> list[discovery_v1.EndpointSlice]:
    """Return the EndpointSlices of a Service: one of each of its families, also without nodes; more if these are many."""
    listed = [
        discovery_v1.EndpointPort(name=port_name(port), port=number, protocol="TCP")
        for port, number in sorted(ports.items())
    ]
    reference = meta_v1.OwnerReference(
        api_version="v1", kind="Service", name=owner.name, uid=service.metadata.uid or "", controller=True
    )
    found = []
    for family in service.spec.ip_families or FAMILIES[:1]:
        endpoints = [
            discovery_v1.Endpoint(
                addresses=[address],
                node_name=name,
                conditions=discovery_v1.EndpointConditions(ready=True, serving=True, terminating=False),
            )
            for name, addresses in nodes
            for address in addresses
            if (":" in address) == (family == "IPv6")
        ]
        for first in range(0, max(len(endpoints), 1), MOST_ENDPOINTS):
            name = f"{owner.name}-{family.lower()}" + (f"-{first // MOST_ENDPOINTS}" if first else "")
            metadata = owner.metadata(name, {SERVICE_NAME: owner.name, SLICE_MANAGER: MANAGED_BY})
            metadata.owner_references = [reference]
            found.append(
                discovery_v1.EndpointSlice(
                    metadata=metadata,
                    address_type=family,
                    ports=listed,
                    endpoints=endpoints[first : first + MOST_ENDPOINTS],
                )
            )
    return found


def updated_slice(
    found: discovery_v1.EndpointSlice, wanted: discovery_v1.EndpointSlice
) -> discovery_v1.EndpointSlice | None:
    """Return a stored slice as it should be, None if it is."""
    metadata = _metadata(found.metadata, wanted.metadata)
    metadata = msgspec.structs.replace(metadata, owner_references=wanted.metadata.owner_references)
    if found.ports == wanted.ports and found.endpoints == wanted.endpoints and metadata == found.metadata:
        return None
    return msgspec.structs.replace(found, ports=wanted.ports, endpoints=wanted.endpoints, metadata=metadata)


def ports_of(found: discovery_v1.EndpointSlice) -> list[tuple[int, int]]:
    """Return the ports that a slice records: a listener's, and the nodes'."""
    known = []
    for each in found.ports:
        number = (each.name or "").removeprefix(port_name(0)[:-1])
        if number.isascii() and number.isdigit() and len(number) <= 5 and each.port:
            known.append((int(number), each.port))
    return known


BALANCER_SECONDS = 5.0
"""Time that a new Service has to get a load balancer's addresses before its cluster IPs are used."""


def addresses(service: core_v1.Service, now: datetime) -> list[str]:
    """Return the addresses of a Gateway: its load balancer's, else its cluster IPs; none while a load balancer is awaited."""
    found = given(service)
    if found or awaits_balancer(service, now):
        return found
    return [each for each in service.spec.cluster_ips if each not in ("", "None")]


def refused_ports(service: core_v1.Service) -> frozenset[int]:
    """Return the ports that a Service does not have at the addresses of its load balancer: others have them."""
    if not given(service):
        return frozenset()
    return frozenset(each.port for each in service.spec.ports) - {number for _, number in served_ports(service)}


def missing_ports(service: core_v1.Service, now: datetime) -> frozenset[int]:
    """Return the ports that a Service does not have at addresses of nodes, none while a load balancer is awaited."""
    if given(service):
        return refused_ports(service)
    return frozenset() if awaits_balancer(service, now) else frozenset(each.port for each in service.spec.ports)


def places(
    service: core_v1.Service, nodes: Iterable[tuple[str, tuple[str, ...]]], ports: Collection[int]
) -> dict[tuple[str, int], int]:
    """Return the addresses of nodes in a Service's status with those of some ports that it has there, and the nodes' ports."""
    own = {address for _, addresses in nodes for address in addresses}
    targets = {each.port: each.target_port for each in service.spec.ports if each.port in ports}
    known = {port: target for port, target in targets.items() if isinstance(target, int)}
    refused = refused_ports(service)
    return {
        (address, port): target
        for address in given(service)
        if address in own
        for port, target in known.items()
        if port not in refused
    }


def awaits_balancer(service: core_v1.Service, now: datetime) -> bool:
    """Return whether a Service is so new that its load balancer may still get addresses."""
    created = service.metadata.creation_timestamp
    return created is not None and (now - parse_time(created)).total_seconds() < BALANCER_SECONDS
