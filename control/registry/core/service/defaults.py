"""Defaults of Services; drops fields that have no meaning for the Service's type.

IP families are filled in where the address is allocated; here is what needs no knowledge of the cluster
(pkg/apis/core/v1/defaults.go), and the dropping of fields that a change of type leaves behind (pkg/registry/core/service).
"""

from __future__ import annotations

from control.registry.field_values import field_value
from kube.json_object import Object

_CLUSTER_IP_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")


def default_service(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    if not spec.get("sessionAffinity"):
        spec["sessionAffinity"] = "None"
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        if config.get("timeoutSeconds") is None:
            config["timeoutSeconds"] = 10800
    if not spec.get("type"):
        spec["type"] = "ClusterIP"
    for port in spec.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    if externally_reachable(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if spec["type"] in _CLUSTER_IP_TYPES and not spec.get("internalTrafficPolicy"):
        spec["internalTrafficPolicy"] = "Cluster"
    if spec["type"] == "LoadBalancer":
        if spec.get("allocateLoadBalancerNodePorts") is None:
            spec["allocateLoadBalancerNodePorts"] = True
        for point in field_value(obj, "status.loadBalancer.ingress") or ():
            if point.get("ip") and point.get("ipMode") is None:
                point["ipMode"] = "VIP"


def externally_reachable(spec: Object) -> bool:
    """True if traffic from outside can reach it, so that an external traffic policy has a meaning."""
    return spec.get("type") in ("NodePort", "LoadBalancer") or (
        spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))
    )


def needs_health_check_port(spec: Object) -> bool:
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def drop_disabled(obj: Object, old: Object) -> None:
    """Drop what a change of type made meaningless, where the client left it as it was."""
    spec, before = obj.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("type") == "ExternalName" and before.get("type") != "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
    if before.get("type") == "ExternalName" and spec.get("type") != "ExternalName":
        if spec.get("externalName") == before.get("externalName"):
            spec.pop("externalName", None)
    if needs_node_port(before) and not needs_node_port(spec):
        old_ports = [p.get("nodePort") for p in before.get("ports") or ()]
        if [p.get("nodePort") for p in spec.get("ports") or ()] == old_ports:
            for port in spec.get("ports") or ():
                port.pop("nodePort", None)
    if needs_health_check_port(before) and not needs_health_check_port(spec):
        if spec.get("healthCheckNodePort") == before.get("healthCheckNodePort"):
            spec.pop("healthCheckNodePort", None)
    if before.get("type") == "LoadBalancer" and spec.get("type") != "LoadBalancer":
        for field in ("allocateLoadBalancerNodePorts", "loadBalancerClass"):
            if spec.get(field) == before.get(field):
                spec.pop(field, None)
        obj.pop("status", None)
    if externally_reachable(before) and not externally_reachable(spec):
        if spec.get("externalTrafficPolicy") == before.get("externalTrafficPolicy"):
            spec.pop("externalTrafficPolicy", None)


def keep_allocated(obj: Object, old: Object) -> None:
    """Copy what was allocated into an update that left it out, as a client that replaces an object does."""
    spec, before = obj.setdefault("spec", {}), old.get("spec") or {}
    if spec.get("type") == "ExternalName" or before.get("type") == "ExternalName":
        return
    old_ips = list(before.get("clusterIPs") or ())
    if not spec.get("clusterIP") and spec.get("clusterIPs", old_ips) in ([], old_ips):
        for field in ("clusterIP", "clusterIPs"):
            if before.get(field):
                spec[field] = before[field]
    elif spec.get("clusterIP") and spec.get("clusterIPs", []) in ([], old_ips):
        # A client that knows of one address changes that alone; the list follows it.
        spec["clusterIPs"] = [spec["clusterIP"], *old_ips[1:]]
    for field in ("ipFamilies", "ipFamilyPolicy"):
        if not spec.get(field) and before.get(field):
            spec[field] = before[field]
    if needs_node_port(spec) and needs_node_port(before):
        _keep_node_ports(spec, before)
    if needs_health_check_port(spec) and needs_health_check_port(before) and not spec.get("healthCheckNodePort"):
        if before.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = before["healthCheckNodePort"]


def _keep_node_ports(spec: Object, before: Object) -> None:
    old_node_ports = {(p.get("protocol"), p.get("port")): p.get("nodePort") for p in before.get("ports") or ()}
    taken = {p.get("nodePort") for p in spec.get("ports") or () if p.get("nodePort")}
    for port in spec.get("ports") or ():
        number = old_node_ports.get((port.get("protocol"), port.get("port")))
        if not port.get("nodePort") and number and number not in taken:
            port["nodePort"] = number


def needs_node_port(spec: Object) -> bool:
    return spec.get("type") == "NodePort" or (
        spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is not False
    )
