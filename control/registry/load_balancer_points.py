"""Addresses of a load balancer in the status of a Service or an Ingress."""

from __future__ import annotations

from control.registry.checks import Errors, each, one_of
from control.registry.field_values import field_value, field_values, values_in
from control.registry.ip_checks import ip, ip_warning
from kube import names
from kube.errors import forbidden_field, invalid_value, required
from kube.ip_addresses import lenient
from kube.json_object import Object

_POINTS = "status.loadBalancer.ingress[*]"


def validate_points(obj: Object, old: Object, *, with_mode: bool) -> Errors:
    """Check the addresses after an update of the status, which may keep stored ones; only a Service's have an ipMode."""
    kept = values_in(old, f"{_POINTS}.ip")
    errors: Errors = []
    for index, point in enumerate(field_value(obj, "status.loadBalancer.ingress") or ()):
        path = f"status.loadBalancer.ingress[{index}]"
        if point.get("ip"):
            errors += ip(point["ip"], f"{path}.ip", kept)
        if with_mode:
            errors += _validate_mode(point, f"{path}.ipMode")
        host = point.get("hostname")
        if host:
            errors += each(f"{path}.hostname", host, names.dns1123_subdomain(host))
            errors += no_address(host, f"{path}.hostname")
    return errors


def _validate_mode(point: Object, path: str) -> Errors:
    mode = point.get("ipMode")
    if mode is None:
        return [required(path, "must be specified when `ip` is set")] if point.get("ip") else []
    if not point.get("ip"):
        return [forbidden_field(path, "may not be specified when `ip` is not set")]
    return one_of(mode, ("Proxy", "VIP"), path)


def no_address(host: str, path: str) -> Errors:
    """Check that a host's name is no IP address."""
    try:
        lenient(host)
    except ValueError:
        return []
    return [invalid_value(path, host, "must be a DNS name, not an IP address")]


def point_warnings(obj: Object) -> list[str]:
    """Warn of addresses that are not in the canonical form; upstream's path ends before `ip`."""
    points = field_values(obj, f"{_POINTS}.ip")
    return [text for path, value in points for text in ip_warning(value, path.removesuffix(".ip"))]
