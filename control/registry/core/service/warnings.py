"""Warnings about Services: fields that are deprecated or ignored, and addresses in other forms than the canonical one.

Upstream: pkg/api/service/warnings.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.ip_checks import cidr_warnings, ip_warnings
from kube.json_object import Object

_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_EXTERNAL_NAME = "ExternalName"


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
