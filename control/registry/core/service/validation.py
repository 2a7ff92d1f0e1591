"""Checks of Services, after addresses and ports have been handed out."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, each, labels, one_of, port, port_or_name, unique
from control.registry.core.pod.container_ports import PROTOCOLS
from control.registry.core.service.address_checks import (
    validate_cluster_ips,
    validate_external_ips,
    validate_source_ranges,
)
from control.registry.core.service.defaults import externally_reachable, needs_health_check_port
from control.registry.field_values import field_value
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
LONGEST_AFFINITY = 86400
SET_ONCE = "may not change once set"
_OLD_HINTS, _TOPOLOGY = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_LOAD_BALANCER_ONLY = ("allocateLoadBalancerNodePorts", "loadBalancerClass")


def validate_service(obj: Object, old: Object | None = None) -> Errors:
    """Check a Service; `old` is what is stored, whose addresses and ranges may stay."""
    spec, annotations = obj.get("spec") or {}, (obj.get("metadata") or {}).get("annotations") or {}
    kind, headless = spec.get("type"), spec.get("clusterIP") == "None"
    errors = _topology(annotations)
    ports = spec.get("ports") or []
    if not ports and not headless and kind != "ExternalName":
        errors.append(required("spec.ports"))
    errors += _by_type(spec, kind, headless=headless)
    errors += _ports(ports, kind)
    errors += labels(spec.get("selector"), "spec.selector")
    errors += _affinity(spec)
    errors += [*validate_cluster_ips(spec, old), *validate_external_ips(obj, old)]
    errors += one_of(kind, TYPES, "spec.type")
    errors += [*validate_source_ranges(obj, old), *_load_balancer(spec, kind)]
    return [*errors, *_traffic(spec, kind)]


def validate_service_update(obj: Object, old: Object) -> FieldErrors:
    """Check a change: addresses and the load balancer's class stay, unless the type goes to or from ExternalName."""
    spec, before = obj.get("spec") or {}, old.get("spec") or {}
    if spec.get("type") == before.get("type") == "LoadBalancer":
        if spec.get("loadBalancerClass") != before.get("loadBalancerClass"):
            yield invalid_value("spec.loadBalancerClass", spec.get("loadBalancerClass"), SET_ONCE)
    if "ExternalName" not in (spec.get("type"), before.get("type")):
        for key in ("clusterIPs", "ipFamilies"):
            now, was = spec.get(key) or [], before.get(key) or []
            if was and not now:
                yield invalid_value(f"spec.{key}[0]", now, f"primary {key[:-1]} can not be unset")
            elif was and now[0] != was[0]:
                yield invalid_value(f"spec.{key}[0]", now, SET_ONCE)
            elif len(was) > 1 and len(now) > 1 and now[1] != was[1]:
                yield invalid_value(f"spec.{key}[1]", now, SET_ONCE)
    if needs_health_check_port(spec) and needs_health_check_port(before):
        if spec.get("healthCheckNodePort") != before.get("healthCheckNodePort"):
            yield forbidden_field("spec.healthCheckNodePort", "field is immutable")
    yield from validate_service(obj, old)


def _topology(annotations: Object) -> Errors:
    hints, mode = annotations.get(_OLD_HINTS), annotations.get(_TOPOLOGY)
    if hints is None or mode is None or hints == mode:
        return []
    detail = f"must match annotations[{_OLD_HINTS}] when both are specified"
    return [invalid_value(f"metadata.annotations[{_TOPOLOGY}]", mode, detail)]


def _by_type(spec: Object, kind: str | None, *, headless: bool) -> Errors:
    errors: Errors = []
    if kind in ("LoadBalancer", "NodePort") and headless:
        errors.append(invalid_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services"))
    if kind == "ExternalName":
        if spec.get("clusterIP") or spec.get("clusterIPs"):
            errors.append(forbidden_field("spec.clusterIPs", "may not be set for ExternalName services"))
        for key in ("ipFamilies", "ipFamilyPolicy"):
            if spec.get(key):
                errors.append(forbidden_field(f"spec.{key}", "may not be set for ExternalName services"))
        name = (spec.get("externalName") or "").removesuffix(".")
        problems = each("spec.externalName", name, names.dns1123_subdomain(name))
        errors += problems if name else [required("spec.externalName")]
    return errors


def _ports(ports: list[Object], kind: str | None) -> FieldErrors:
    seen: set[str] = set()
    pairs: set[tuple[object, object]] = set()
    node_pairs: set[tuple[object, object]] = set()
    for index, item in enumerate(ports):
        where, name = f"spec.ports[{index}]", item.get("name") or ""
        if name:
            yield from each(f"{where}.name", name, names.dns1123_label(name))
            yield from unique(f"{where}.name", name, seen)
        elif len(ports) > 1:
            yield required(f"{where}.name")
        yield from port(item.get("port", 0), f"{where}.port")
        yield from one_of(item.get("protocol"), PROTOCOLS, f"{where}.protocol")
        yield from port_or_name(item.get("targetPort"), f"{where}.targetPort")
        if item.get("appProtocol"):
            yield from each(f"{where}.appProtocol", item["appProtocol"], names.qualified_name(item["appProtocol"]))
        node_port = item.get("nodePort")
        if node_port:
            if kind == "ClusterIP":
                yield forbidden_field(f"{where}.nodePort", "may not be used when `type` is 'ClusterIP'")
            pair = (item.get("protocol"), node_port)
            if pair in node_pairs:
                yield duplicate(f"{where}.nodePort", node_port)
            node_pairs.add(pair)
        pair = (item.get("protocol"), item.get("port"))
        if pair in pairs:
            yield duplicate(where, {"protocol": pair[0], "port": pair[1]})
        pairs.add(pair)


def _affinity(spec: Object) -> FieldErrors:
    yield from one_of(spec.get("sessionAffinity"), ("ClientIP", "None"), "spec.sessionAffinity")
    config = spec.get("sessionAffinityConfig")
    path = "spec.sessionAffinityConfig"
    if spec.get("sessionAffinity") == "ClientIP":
        seconds = field_value(config, "clientIP.timeoutSeconds")
        where = f"{path}.clientIP.timeoutSeconds"
        if seconds is None:
            yield required(where, "when session affinity type is ClientIP")
        elif not 0 < seconds <= LONGEST_AFFINITY:
            yield invalid_value(where, seconds, f"must be greater than 0 and less than {LONGEST_AFFINITY}")
    elif config is not None:
        yield forbidden_field(path, "must not be set when session affinity is None")


def _load_balancer(spec: Object, kind: str | None) -> FieldErrors:
    for key in _LOAD_BALANCER_ONLY:
        if spec.get(key) is not None and kind != "LoadBalancer":
            yield forbidden_field(f"spec.{key}", "may only be used when `type` is 'LoadBalancer'")
    if spec.get("loadBalancerClass"):
        found = spec["loadBalancerClass"]
        yield from each("spec.loadBalancerClass", found, names.qualified_name(found))


def _traffic(spec: Object, kind: str | None) -> FieldErrors:
    outside, path = spec.get("externalTrafficPolicy"), "spec.externalTrafficPolicy"
    if externally_reachable(spec):
        yield from one_of(outside, ("Cluster", "Local"), path)
    elif outside:
        yield invalid_value(path, outside, "may only be set for externally-accessible services")
    check = spec.get("healthCheckNodePort")
    if check and not needs_health_check_port(spec):
        detail = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid_value("spec.healthCheckNodePort", check, detail)
    inside, needed = spec.get("internalTrafficPolicy"), kind in ("ClusterIP", "NodePort", "LoadBalancer")
    yield from one_of(inside, ("Cluster", "Local"), "spec.internalTrafficPolicy", needed=needed)
    spread = spec.get("trafficDistribution")
    if spread is not None:
        ways = ("PreferClose", "PreferSameNode", "PreferSameZone")
        yield from one_of(spread, ways, "spec.trafficDistribution")
