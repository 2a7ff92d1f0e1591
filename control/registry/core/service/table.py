"""The row of a Service in `kubectl get services`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.field_values import field_value
from control.registry.table_cells import AGE, NAME, NONE, SELECTOR, Column, created, labels_text, name_of
from control.registry.tables import age
from kube.json_object import Object

COLUMNS = (
    NAME,
    Column("Type", description="How the service is exposed."),
    Column("Cluster-IP", description="Address inside the cluster."),
    Column("External-IP", description="Addresses outside the cluster."),
    Column("Port(s)", description="Ports and, after a colon, node ports."),
    AGE,
    SELECTOR,
)


def row(service: Object, now: datetime) -> list[Any]:
    spec = service.get("spec") or {}
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    return [
        name_of(service),
        spec.get("type") or "",
        ips[0] if ips else NONE,
        _external(service, spec),
        _ports(spec),
        age(created(service), now),
        labels_text(spec.get("selector")),
    ]


def _external(service: Object, spec: Object) -> str:
    kind, outside = spec.get("type"), spec.get("externalIPs") or []
    if kind == "ExternalName":
        return spec.get("externalName") or ""
    if kind == "LoadBalancer":
        ingress = field_value(service, "status.loadBalancer.ingress") or []
        found = sorted({i.get("ip") or i.get("hostname") or "" for i in ingress} - {""})
        return ",".join([*found, *outside]) or "<pending>"
    if kind in ("ClusterIP", "NodePort"):
        return ",".join(outside) or NONE
    return "<unknown>"


def _ports(spec: Object) -> str:
    shown = []
    for port in spec.get("ports") or ():
        number = str(port.get("port", 0))
        if port.get("nodePort"):
            number += f":{port['nodePort']}"
        shown.append(f"{number}/{port.get('protocol', '')}")
    return ",".join(shown) or NONE
