"""Warnings about ports of a pod's containers that are named twice, or so that nobody can say which is meant.

All containers share the pod's network, so a port number is compared over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.registry.core.pod_annotations import containers_with_paths
from control.registry.strategy import Object


def port_warnings(spec: Object, path: str) -> Iterator[str]:
    """Yield what is odd about the ports of a pod spec."""
    known: dict[tuple[object, object], list[tuple[str, Object]]] = {}
    for container, where in containers_with_paths(spec, path):
        for index, port in enumerate(container.get("ports") or ()):
            own = f"{where}.ports[{index}]"
            if port.get("hostIP") and not port.get("hostPort"):
                yield f"{own}: hostIP set without hostPort: {_go(port)}"
            others = known.setdefault((port.get("containerPort", 0), port.get("protocol")), [])
            for place, other in others:
                how = _clash(port, other)
                if how:
                    yield f"{own}: {how} port definition with {place}"
            others.append((own, port))


def _clash(port: Object, other: Object) -> str:
    (ip, host), (ip_before, host_before) = (((p.get("hostIP") or ""), p.get("hostPort") or 0) for p in (port, other))
    if (ip, host) == (ip_before, host_before):
        return "duplicate"
    if not host or not host_before:
        return "overlapping"
    return "dangerously ambiguous" if host == host_before and bool(ip) != bool(ip_before) else ""


def _go(port: Object) -> str:
    """Print a port as Go's %+v does."""
    parts = [("Name", ""), ("HostPort", 0), ("ContainerPort", 0), ("Protocol", ""), ("HostIP", "")]
    shown = (f"{name}:{port.get(name[0].lower() + name[1:]) or empty}" for name, empty in parts)
    return "{" + " ".join(shown) + "}"
