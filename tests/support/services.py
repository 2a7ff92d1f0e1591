"""Services, slices and nodes for tests, in few words."""

from typing import Any

from kube.api import core_v1, discovery_v1, meta_v1


def service(
    name: str,
    ip: str,
    *ports: core_v1.ServicePort,
    namespace: str = "default",
    labels: dict[str, str] | None = None,
    ingress: tuple[str, ...] = (),
    **spec: Any,
) -> core_v1.Service:
    """A Service; without ports it has one, "http" 80 -> 8080."""
    status = core_v1.ServiceStatus()
    if ingress:
        status.load_balancer = core_v1.LoadBalancerStatus(
            ingress=[core_v1.LoadBalancerIngress(ip=each) for each in ingress]
        )
    ips = spec.pop("ips", [ip] if ip else [])
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name=name, namespace=namespace, labels=labels or {}),
        spec=core_v1.ServiceSpec(
            cluster_ip=ip or None, cluster_ips=ips, ports=list(ports) or [port("http", 80)], **spec
        ),
        status=status,
    )


def port(name: str, number: int, protocol: str = "TCP", node_port: int | None = None) -> core_v1.ServicePort:
    return core_v1.ServicePort(name=name, port=number, protocol=protocol, node_port=node_port)


def endpoint(
    ip: str,
    *,
    node: str = "node-1",
    ready: bool | None = True,
    serving: bool | None = None,
    terminating: bool | None = None,
    hostname: str | None = None,
    zones: tuple[str, ...] = (),
    nodes: tuple[str, ...] = (),
) -> discovery_v1.Endpoint:
    hints = None
    if zones or nodes:
        hints = discovery_v1.EndpointHints(
            for_zones=[discovery_v1.ForZone(name=zone) for zone in zones],
            for_nodes=[discovery_v1.ForNode(name=each) for each in nodes],
        )
    return discovery_v1.Endpoint(
        addresses=[ip],
        node_name=node,
        hostname=hostname,
        conditions=discovery_v1.EndpointConditions(ready=ready, serving=serving, terminating=terminating),
        hints=hints,
    )


def slice_of(
    service_name: str,
    *endpoints: discovery_v1.Endpoint | str,
    ports: dict[str, int] | None = None,
    protocol: str = "TCP",
    namespace: str = "default",
    suffix: str = "abcde",
    address_type: str = "IPv4",
) -> discovery_v1.EndpointSlice:
    """A slice; its ports are name -> target, by default "http" -> 8080."""
    return discovery_v1.EndpointSlice(
        metadata=meta_v1.ObjectMeta(
            name=f"{service_name}-{suffix}",
            namespace=namespace,
            labels={"kubernetes.io/service-name": service_name},
        ),
        address_type=address_type,
        ports=[
            discovery_v1.EndpointPort(name=name, port=number, protocol=protocol)
            for name, number in (ports or {"http": 8080}).items()
        ],
        endpoints=[endpoint(each) if isinstance(each, str) else each for each in endpoints],
    )


def node(name: str = "node-1", pod_cidr: str = "", ip: str = "", zone: str = "", cidr6: str = "") -> core_v1.Node:
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=name, labels={"topology.kubernetes.io/zone": zone} if zone else {}),
        spec=core_v1.NodeSpec(pod_cidr=pod_cidr or None, pod_cidrs=[each for each in (pod_cidr, cidr6) if each]),
        status=core_v1.NodeStatus(
            addresses=[core_v1.NodeAddress(type="InternalIP", address=ip)] if ip else [],
        ),
    )
