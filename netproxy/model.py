"""Desired state of the proxy: one `ServicePort` a port and IP family, from Services and EndpointSlices. No I/O.

`plan_service` is the whole rule for one Service. What a backend needs to know of a port is in `ServicePort` alone: addresses
to listen on, endpoints for each traffic policy, what happens without any.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kube.api import core_v1, discovery_v1
from kube.ip_addresses import canonical
from netproxy import endpoints as selection
from netproxy.endpoints import Endpoint, NodeView
from netproxy.families import canonical_ranges, family_of
from netproxy.service_limits import DEFAULT_AFFINITY_SECONDS, PAIRS, ModeCost, check_cost
from netproxy.source_ranges import SourceRanges

SERVICE_NAME_LABEL = "kubernetes.io/service-name"
PROXY_NAME_LABEL = "service.kubernetes.io/service-proxy-name"
HEADLESS_LABEL = "service.kubernetes.io/headless"


class ServicePortName(NamedTuple):
    """Names a port of a Service; as text "namespace/name:port", without ":port" where the port has no name."""

    namespace: str
    name: str
    port: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}:{self.port}" if self.port else f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class ServicePort:
    """The desired state of one port of a Service in one IP family."""

    name: ServicePortName
    family: int
    protocol: str
    cluster_ip: str
    port: int
    node_port: int = 0
    external_ips: tuple[str, ...] = ()
    load_balancer_ips: tuple[str, ...] = ()
    source_ranges: tuple[str, ...] = ()
    affinity_seconds: int = 0
    internal_local: bool = False
    external_local: bool = False
    health_check_node_port: int = 0
    endpoints: tuple[Endpoint, ...] = ()
    """Those that the policy Cluster uses."""
    local_endpoints: tuple[Endpoint, ...] = ()
    """Those that the policy Local uses; empty where no policy of this port is Local."""
    has_endpoints_anywhere: bool = False
    """True if any endpoint anywhere could answer: distinguishes "no endpoints" (reject) from "none here" (drop).

    The IPVS mode does not read it: a virtual server without endpoints rejects.
    """

    @property
    def reachable_from_outside(self) -> bool:
        return bool(self.node_port or self.external_ips or self.load_balancer_ips)

    @property
    def answered(self) -> bool:
        """True if an endpoint is there for packets from outside or from pods."""
        return self.has_endpoints_anywhere and bool(self.endpoints or self.local_endpoints)

    @property
    def internal_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of packets to the cluster IP."""
        return self.local_endpoints if self.internal_local else self.endpoints

    @property
    def external_endpoints(self) -> tuple[Endpoint, ...]:
        """The endpoints of packets from outside the cluster."""
        return self.local_endpoints if self.external_local else self.endpoints


def is_proxied(service: core_v1.Service) -> bool:
    """Return whether this proxy serves the Service: not headless, not ExternalName, not another proxy's."""
    labels = service.metadata.labels
    if PROXY_NAME_LABEL in labels or HEADLESS_LABEL in labels:
        return False
    return service.spec.type != "ExternalName" and service.spec.cluster_ip not in (None, "", "None")


def plan_service(
    service: core_v1.Service,
    slices: Iterable[discovery_v1.EndpointSlice],
    node: NodeView = NodeView(),  # noqa: B008 - frozen
    families: Collection[int] = (4,),
    local_cluster_ips: Collection[str] = (),
    other_node_addresses: Collection[str] = (),
    ports_in_use: Collection[tuple[str, str, int]] = (),
    before: Sequence[ServicePort] = (),
    cost: ModeCost = PAIRS,
) -> tuple[ServicePort, ...]:
    """Return the desired state of one Service, families apart; ServiceError for one that costs too much.

    `local_cluster_ips` are cluster IPs that the node answers itself (cluster DNS): they are local addresses, so rules for
    them would only take their packets away. `other_node_addresses` are the other nodes' own addresses: as addresses of the
    built-in load balancer they are served where they are, and to take them in here could cut the node off from its neighbours.
    Those of a Service with a loadBalancerClass are another balancer's and are served everywhere.
    `ports_in_use` are (address, protocol, port) of this node's own daemons, which no load balancer hides. `before` is what was
    returned last: equal lists are the same objects again, for thousands of ports are compared with what they were.
    `cost` is what the proxy mode writes for a port.
    """
    if not is_proxied(service):
        return ()
    spec = service.spec
    slice_ports = selection.by_port(slices)
    result: list[ServicePort] = []
    for cluster_ip in map(canonical, spec.cluster_ips or [spec.cluster_ip or ""]):
        family = family_of(cluster_ip)
        if family not in families or cluster_ip in local_cluster_ips:
            continue
        shared = _shared(service, family, other_node_addresses, before)
        balanced = len(shared.load_balancer_ips), len(shared.source_ranges)
        check_cost(spec.ports, family, shared.addresses, balanced, slice_ports, cost, _affinity_seconds(spec))
        for port in spec.ports:
            result.append(_plan_port(service, port, cluster_ip, shared, slice_ports, node, ports_in_use))
    return tuple(result)


@dataclass(frozen=True, slots=True)
class _Shared:
    """Addresses and ranges of all ports of a Service in one family: there may be thousands of ports and of each of these."""

    family: int
    external_ips: tuple[str, ...]
    load_balancer_ips: tuple[str, ...]
    source_ranges: tuple[str, ...]
    granted: Mapping[str, frozenset[tuple[str, int]]]
    """By address of the load balancer: the only ports that it has, where the status lists them (protocol, port)."""

    @property
    def addresses(self) -> int:
        """The number of addresses that serve a port: the cluster IP, these, and the node's own."""
        return 2 + len(self.external_ips) + len(self.load_balancer_ips)

    def balanced_at(self, protocol: str, port: int, ports_in_use: Collection[tuple[str, str, int]]) -> tuple[str, ...]:
        """Return the load balancer's addresses that have the port, and at which no daemon of the node has it."""
        ips = self.load_balancer_ips
        hidden = {ip for ip in ips if (ip, protocol, port) in ports_in_use} if ports_in_use else set()
        hidden |= {ip for ip, ports in self.granted.items() if (protocol, port) not in ports}
        return tuple(ip for ip in ips if ip not in hidden) if hidden else ips


def _shared(
    service: core_v1.Service, family: int, other_node_addresses: Collection[str], before: Sequence[ServicePort]
) -> _Shared:
    spec = service.spec
    balanced = spec.type == "LoadBalancer"
    # Only the built-in load balancer gives nodes' addresses. A node writes its own, and could name another balancer's.
    others = () if spec.load_balancer_class else other_node_addresses
    known = next((port for port in before if port.family == family), None)
    given = _load_balancer_ips(service, family) if balanced else ()
    return _Shared(
        family,
        _same(known.external_ips if known else (), _of_family(map(canonical, spec.external_ips), family)),
        _same(known.load_balancer_ips if known else (), (ip for ip in given if ip not in others)),
        SourceRanges.of(_same(known.source_ranges if known else (), _source_ranges(spec, family))),
        _granted(service) if balanced else {},
    )


def _same(known: tuple[str, ...], texts: Iterable[str]) -> tuple[str, ...]:
    """Return texts as a tuple: the known one where it is equal."""
    found = tuple(texts)
    return known if known == found else found


def _plan_port(
    service: core_v1.Service,
    port: core_v1.ServicePort,
    cluster_ip: str,
    shared: _Shared,
    slice_ports: selection.SlicePorts,
    node: NodeView,
    ports_in_use: Collection[tuple[str, str, int]],
) -> ServicePort:
    spec = service.spec
    protocol, family = port.protocol or "TCP", shared.family
    kind = spec.type or "ClusterIP"
    node_port = (port.node_port or 0) if kind in ("NodePort", "LoadBalancer") else 0
    load_balancer_ips = shared.balanced_at(protocol, port.port, ports_in_use)
    outside = bool(node_port or shared.external_ips or load_balancer_ips)
    internal_local = spec.internal_traffic_policy == "Local"
    external_local = spec.external_traffic_policy == "Local" and outside

    every = selection.collect(slice_ports, family, port.name or "", protocol, node)
    cluster: tuple[Endpoint, ...] = ()
    local: tuple[Endpoint, ...] = ()
    # A port that is reachable from outside under the policy Local still needs the cluster's endpoints: traffic that
    # starts in the cluster takes the short way round and must not depend on what runs on this node.
    if not internal_local or outside:
        cluster = selection.cluster_endpoints(every, node)
    if internal_local or external_local:
        local = selection.local_endpoints(every)
    return ServicePort(
        name=ServicePortName(service.metadata.namespace or "", service.metadata.name or "", port.name or ""),
        family=family,
        protocol=protocol,
        cluster_ip=cluster_ip,
        port=port.port,
        node_port=node_port,
        external_ips=shared.external_ips,
        load_balancer_ips=load_balancer_ips,
        source_ranges=shared.source_ranges,
        affinity_seconds=_affinity_seconds(spec),
        internal_local=internal_local,
        external_local=external_local,
        health_check_node_port=(spec.health_check_node_port or 0) if external_local else 0,
        endpoints=cluster,
        local_endpoints=local,
        has_endpoints_anywhere=bool(cluster)
        or any(each.ready or (each.serving and each.terminating) for each in every),
    )


def _source_ranges(spec: core_v1.ServiceSpec, family: int) -> tuple[str, ...]:
    if spec.type != "LoadBalancer":
        return ()
    return tuple(_of_family(canonical_ranges(spec.load_balancer_source_ranges), family))


def _of_family(texts: Iterable[str], family: int) -> Iterator[str]:
    return (text for text in texts if family_of(text) == family)


def _affinity_seconds(spec: core_v1.ServiceSpec) -> int:
    if spec.session_affinity != "ClientIP":
        return 0
    client_ip = spec.session_affinity_config.client_ip if spec.session_affinity_config else None
    return (client_ip.timeout_seconds if client_ip else None) or DEFAULT_AFFINITY_SECONDS


def _load_balancer_ips(service: core_v1.Service, family: int) -> tuple[str, ...]:
    status = service.status.load_balancer
    found = (
        canonical(ingress.ip)
        for ingress in (status.ingress if status else ())
        # ipMode Proxy: the balancer sends to node ports itself and its address must not be short-circuited.
        if ingress.ip and (ingress.ip_mode or "VIP") == "VIP"
    )
    return tuple(_of_family(found, family))


def _granted(service: core_v1.Service) -> dict[str, frozenset[tuple[str, int]]]:
    """Return the ports that a load balancer's addresses have, of those that list any.

    The Service's author adds ports at will, and its balancer may refuse them a moment later: they are not served before.
    """
    status = service.status.load_balancer
    found: dict[str, frozenset[tuple[str, int]]] = {}
    for ingress in status.ingress if status else ():
        if ingress.ip and ingress.ports:
            ports = frozenset((port.protocol, port.port) for port in ingress.ports if not port.error)
            found[canonical(ingress.ip)] = found.get(canonical(ingress.ip), frozenset()) | ports
    return found


def owner_of(slice_: discovery_v1.EndpointSlice) -> str:
    """Return the key of the Service that a slice belongs to, or ""."""
    name = slice_.metadata.labels.get(SERVICE_NAME_LABEL)
    return f"{slice_.metadata.namespace or ''}/{name}" if name else ""
