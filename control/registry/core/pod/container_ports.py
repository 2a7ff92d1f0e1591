"""Checks of the ports of containers, and of those that they take of the node."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, each, one_of, port
from kube import names
from kube.errors import duplicate, invalid_value, required
from kube.json_object import Object

PROTOCOLS = ("SCTP", "TCP", "UDP")


def validate_ports(ports: list[Object], path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, item in enumerate(ports):
        where, name = f"{path}[{index}]", item.get("name") or ""
        if name:
            problems = names.port_name(name)
            errors += each(f"{where}.name", name, problems)
            if not problems and name in seen:
                errors.append(duplicate(f"{where}.name", name))
            seen.add(name)
        number = item.get("containerPort", 0)
        errors += port(number, f"{where}.containerPort") if number else [required(f"{where}.containerPort")]
        if item.get("hostPort"):
            errors += port(item["hostPort"], f"{where}.hostPort")
        errors += one_of(item.get("protocol"), PROTOCOLS, f"{where}.protocol")
    return errors


def unique_host_ports(containers: list[Object], path: str) -> FieldErrors:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for number, item in enumerate(container.get("ports") or ()):
            if not item.get("hostPort"):
                continue
            taken = f"{item.get('protocol', '')}/{item.get('hostIP') or ''}/{item['hostPort']}"
            if taken in seen:
                yield duplicate(f"{path}[{index}].ports[{number}].hostPort", taken)
            seen.add(taken)


def validate_host_network(containers: list[Object], path: str, *, is_pod: bool) -> FieldErrors:
    """Check that host ports are container ports; a template may leave them to be filled in its pods."""
    for index, container in enumerate(containers):
        for number, item in enumerate(container.get("ports") or ()):
            host = item.get("hostPort") or 0
            if (is_pod or host) and host != item.get("containerPort"):
                where = f"{path}[{index}].ports[{number}].hostPort"
                yield invalid_value(where, host, "must match `containerPort` when `hostNetwork` is true")
