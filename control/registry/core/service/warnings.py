"""Warnings about Services: fields that are deprecated or ignored, and addresses in other forms than the canonical one.

Upstream: pkg/api/service/warnings.go.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping

from control.registry.ip_checks import cidr_warnings, ip_warnings
from kube.json_object import Object
from kube.port_ranges import NODES_OWN, PortRanges

_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
Port = tuple[str, int]
"""(protocol, number)."""
_EXTERNAL_NAME = "ExternalName"
MOST_SHOWN = 10
"""Ports in one warning."""


def service_warnings(obj: Object) -> list[str]:
    """Return the warnings for a new or changed Service."""
    spec, annotations = obj.get("spec") or {}, (obj.get("metadata") or {}).get("annotations") or {}
    headless = spec.get("type") == "ClusterIP" and spec.get("clusterIP") == "None"
    found = [f"annotation {_HINTS} is deprecated, please use {_MODE} instead"] if _HINTS in annotations else []
    if spec.get("clusterIP") not in (None, "", "None"):
        found += ip_warnings(obj, "spec.clusterIPs[*]")
    if headless:
        found += _ignored_if_headless(spec)
    found += ip_warnings(obj, "spec.externalIPs[*]")
    if spec.get("externalIPs") and not headless and spec.get("type") != _EXTERNAL_NAME:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    found += ip_warnings(obj, "spec.loadBalancerIP")
    found += cidr_warnings(obj, "spec.loadBalancerSourceRanges[*]")
    return [*found, *_ignored_by_type(spec), *_deprecated_value(spec)]


@functools.cache
def _ranges(text: str) -> PortRanges:
    return PortRanges.parse(text)


def refused_ports(obj: Object, old: Object | None, allowed: str, reserved: Mapping[Port, str] = NODES_OWN) -> list[str]:
    """Return warnings for new ports that the built-in load balancer does not give to Services; `allowed` "": it is off."""
    spec, before = obj.get("spec") or {}, (old or {}).get("spec") or {}
    if not allowed or spec.get("type") != "LoadBalancer" or spec.get("loadBalancerClass"):
        return []
    new = _ports(spec) - (_ports(before) if before.get("type") == "LoadBalancer" else set())
    found = []
    outside = sorted({port for _, port in new if port and port not in _ranges(allowed)})
    if outside:
        shown = _listed(map(str, outside), len(outside))
        found.append(
            f"spec.ports: the load balancer of this cluster gives Services the ports {allowed} only, and not {shown}"
        )
    if nodes := sorted(new & reserved.keys()):
        shown = _listed(
            (f"{number}/{protocol} ({reserved[protocol, number]})" for protocol, number in nodes), len(nodes)
        )
        found.append(
            f"spec.ports: the load balancer of this cluster gives Services no ports of the nodes, and not {shown}"
        )
    return found


def _ports(spec: Object) -> set[Port]:
    return {(port.get("protocol") or "TCP", port.get("port") or 0) for port in spec.get("ports") or ()}


def _listed(texts: Iterable[str], count: int) -> str:
    return ", ".join(itertools.islice(texts, MOST_SHOWN)) + (", ..." if count > MOST_SHOWN else "")


def _ignored_if_headless(spec: Object) -> Iterator[str]:
    for field in ("loadBalancerIP", "externalIPs"):
        if spec.get(field):
            yield f"spec.{field} is ignored for headless services"
    if spec.get("sessionAffinity") != "None":
        yield "spec.SessionAffinity is ignored for headless services"


def _ignored_by_type(spec: Object) -> Iterator[str]:
    external = spec.get("type") == _EXTERNAL_NAME
    if external and spec.get("externalIPs"):
        yield f'spec.externalIPs is ignored when spec.type is "{_EXTERNAL_NAME}"'
    if not external and spec.get("externalName"):
        yield f'spec.externalName is ignored when spec.type is not "{_EXTERNAL_NAME}"'


def _deprecated_value(spec: Object) -> Iterator[str]:
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
