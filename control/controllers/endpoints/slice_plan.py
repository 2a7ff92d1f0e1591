"""The slices that a Service should have, as the fewest changes to those it has. Pure.

Endpoints are grouped by address family and ports (named ports may differ from pod to pod). In each group what is still
wanted stays where it is; the rest fills slices that change anyway, then ones with room, then new ones, 100 to a slice.
A slice that would be deleted while another is made is rewritten instead. Upstream: staging/endpointslice/reconciler.go.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from control.controllers.endpoints.backends import (
    addresses,
    hostname_of,
    is_backend,
    is_headless,
    is_ready,
    target_of,
)
from control.controllers.endpoints.target_ports import Ports, TargetPorts
from control.controllers.endpoints.trigger_time import ANNOTATION
from control.controllers.ownership import controller_reference
from kube.api import core_v1, discovery_v1, meta_v1

Slice = discovery_v1.EndpointSlice
Endpoint = discovery_v1.Endpoint
MANAGED_BY, MANAGER = "endpointslice.kubernetes.io/managed-by", "endpointslice-controller.k8s.io"
SERVICE_NAME, HEADLESS = "kubernetes.io/service-name", "service.kubernetes.io/headless"
ZONE = "topology.kubernetes.io/zone"
MOST_ENDPOINTS = 100


class SlicePlan(msgspec.Struct):
    create: list[Slice] = msgspec.field(default_factory=list)
    update: list[Slice] = msgspec.field(default_factory=list)
    delete: list[Slice] = msgspec.field(default_factory=list)

    @property
    def empty(self) -> bool:
        return not (self.create or self.update or self.delete)


def plan(
    service: core_v1.Service,
    pods: Sequence[core_v1.Pod],
    nodes: Mapping[str, core_v1.Node],
    existing: Sequence[Slice],
    trigger_time: str = "",
    ports: TargetPorts | None = None,
) -> SlicePlan:
    """Compare the endpoints that the pods give with the slices that are there; `ports` may know the pods' already."""
    result, ports = SlicePlan(), ports or TargetPorts(service)
    families = service.spec.ip_families or ["IPv4"]
    for family in families:
        mine = [s for s in existing if s.address_type == family]
        _plan_family(service, family, _wanted(service, ports, family, pods, nodes), mine, trigger_time, result)
    result.delete += [s for s in existing if s.address_type not in families]
    return result


def _wanted(
    service: core_v1.Service,
    target_ports: TargetPorts,
    family: str,
    pods: Sequence[core_v1.Pod],
    nodes: Mapping[str, core_v1.Node],
) -> dict[Ports, dict[str, Endpoint]]:
    """Return the endpoints by ports and identity."""
    groups: dict[int, tuple[Ports, dict[str, Endpoint]]] = {}
    """By the identity of the ports: to hash thousands of them for each pod takes long."""
    for pod in pods:
        if not is_backend(pod, include_terminating=True):
            continue
        own = [ip for ip in addresses(pod) if (":" in ip) == (family == "IPv6")]
        if own:
            endpoint = endpoint_of(service, pod, own[:1], nodes.get(pod.spec.node_name or ""))
            ports = target_ports.of(pod)
            groups.setdefault(id(ports), (ports, {}))[1][_identity(endpoint)] = endpoint
    return dict(groups.values())


def endpoint_of(service: core_v1.Service, pod: core_v1.Pod, ips: list[str], node: core_v1.Node | None) -> Endpoint:
    """Return the endpoint that a pod is."""
    serving, terminating = is_ready(pod), pod.metadata.deletion_timestamp is not None
    ready = bool(service.spec.publish_not_ready_addresses) or (serving and not terminating)
    zone = node.metadata.labels.get(ZONE) if node is not None else None
    return Endpoint(
        addresses=ips,
        conditions=discovery_v1.EndpointConditions(ready=ready, serving=serving, terminating=terminating),
        hostname=hostname_of(pod, service),
        node_name=pod.spec.node_name,
        target_ref=target_of(pod),
        zone=zone,
        hints=_hints(service, ready=ready, node=pod.spec.node_name, zone=zone),
    )


def _hints(
    service: core_v1.Service, *, ready: bool, node: str | None, zone: str | None
) -> discovery_v1.EndpointHints | None:
    """Return where an endpoint's traffic should come from, for Services that ask to keep it near."""
    distribution = service.spec.traffic_distribution
    if not ready or distribution not in ("PreferClose", "PreferSameZone", "PreferSameNode"):
        return None
    zones = [discovery_v1.ForZone(name=zone)] if zone else []
    nodes = [discovery_v1.ForNode(name=node)] if node and distribution == "PreferSameNode" else []
    return discovery_v1.EndpointHints(for_zones=zones, for_nodes=nodes) if zones or nodes else None


def _identity(endpoint: Endpoint) -> str:
    target = endpoint.target_ref
    return f"{target.uid if target else ''}/{','.join(endpoint.addresses)}"


def _ports_key(found: Slice) -> Ports:
    ports = [(p.name or "", p.protocol or "TCP", p.port or 0, p.app_protocol) for p in found.ports]
    return tuple(sorted(ports, key=lambda p: p[:3]))


def _plan_family(
    service: core_v1.Service,
    family: str,
    wanted: dict[Ports, dict[str, Endpoint]],
    existing: Sequence[Slice],
    trigger_time: str,
    result: SlicePlan,
) -> None:
    create: list[tuple[Ports, list[Endpoint]]] = []
    update: list[Slice] = []
    delete: list[Slice] = []
    labels = labels_of(service)
    by_ports: dict[Ports, list[Slice]] = {ports: [] for ports in wanted}
    for found in existing:
        by_ports.setdefault(_ports_key(found), []).append(found)
    for ports, same in by_ports.items():
        _plan_group(ports, wanted.get(ports, {}), same, labels, create, update, delete)
    if not wanted and not create:
        # A Service without endpoints keeps one empty slice, so that proxies know it is known.
        placeholder = next((s for s in delete if not s.ports and not s.endpoints), None)
        if placeholder is not None:
            delete.remove(placeholder)
            if placeholder.metadata.labels != labels:
                update.append(_rewritten(placeholder, (), [], labels))
        else:
            create.append(((), []))
    while create and delete:
        ports, endpoints = create.pop()
        update.append(_rewritten(delete.pop(), ports, endpoints, labels))
    result.create += [_new(service, family, ports, endpoints, labels, trigger_time) for ports, endpoints in create]
    result.update += [_stamped(changed, trigger_time) for changed in update]
    result.delete += delete


def _plan_group(
    ports: Ports,
    wanted: dict[str, Endpoint],
    existing: Sequence[Slice],
    labels: dict[str, str],
    create: list[tuple[Ports, list[Endpoint]]],
    update: list[Slice],
    delete: list[Slice],
) -> None:
    left = dict(wanted)
    kept: list[tuple[Slice, list[Endpoint], bool]] = []
    for found in existing:
        endpoints = [fresh for old in found.endpoints if (fresh := left.pop(_identity(old), None)) is not None]
        changed = endpoints != found.endpoints or found.metadata.labels != labels
        kept.append((found, endpoints, changed))
    rest = list(left.values())
    # First into slices that are written anyway, the emptiest last; then into the fullest others that have room.
    for touch_unchanged in (False, True):
        for position, (found, endpoints, changed) in sorted(
            enumerate(kept), key=lambda item: len(item[1][1]), reverse=True
        ):
            room = MOST_ENDPOINTS - len(endpoints)
            if rest and room > 0 and endpoints and changed is not touch_unchanged:
                kept[position] = (found, endpoints + rest[:room], True)
                rest = rest[room:]
    for found, endpoints, changed in kept:
        if not endpoints:
            delete.append(found)
        elif changed:
            update.append(_rewritten(found, ports, endpoints, labels))
    for start in range(0, len(rest), MOST_ENDPOINTS):
        create.append((ports, rest[start : start + MOST_ENDPOINTS]))


def labels_of(service: core_v1.Service) -> dict[str, str]:
    """Return a slice's labels: the Service's own, and those by which the slice is found."""
    labels = {k: v for k, v in service.metadata.labels.items() if k not in (SERVICE_NAME, MANAGED_BY, HEADLESS)}
    if is_headless(service):
        labels[HEADLESS] = ""
    return {**labels, SERVICE_NAME: service.metadata.name or "", MANAGED_BY: MANAGER}


def _port_structs(ports: Ports) -> list[discovery_v1.EndpointPort]:
    return [
        discovery_v1.EndpointPort(name=name, protocol=protocol, port=number, app_protocol=app)
        for name, protocol, number, app in ports
    ]


def _new(
    service: core_v1.Service,
    family: str,
    ports: Ports,
    endpoints: list[Endpoint],
    labels: dict[str, str],
    trigger_time: str,
) -> Slice:
    prefix = f"{service.metadata.name}-"
    made = Slice(
        metadata=meta_v1.ObjectMeta(
            generate_name=prefix,
            namespace=service.metadata.namespace,
            labels=labels,
            owner_references=[controller_reference(service)],
        ),
        address_type=family,
        ports=_port_structs(ports),
        endpoints=endpoints,
    )
    return _stamped(made, trigger_time)


def _rewritten(found: Slice, ports: Ports, endpoints: list[Endpoint], labels: dict[str, str]) -> Slice:
    metadata = msgspec.structs.replace(found.metadata, labels=labels)
    same_ports = _ports_key(found) == ports
    return msgspec.structs.replace(
        found, metadata=metadata, endpoints=endpoints, ports=found.ports if same_ports else _port_structs(ports)
    )


def _stamped(changed: Slice, trigger_time: str) -> Slice:
    annotations = {k: v for k, v in changed.metadata.annotations.items() if k != ANNOTATION}
    if trigger_time:
        annotations[ANNOTATION] = trigger_time
    return msgspec.structs.replace(changed, metadata=msgspec.structs.replace(changed.metadata, annotations=annotations))
