"""Nodes: STATUS from the Ready condition and cordoning, ROLES from labels."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age

_ROLE_PREFIX = "node-role.kubernetes.io/"


class NodeStrategy(Strategy):
    columns = (
        NAME,
        Column("Status", description="Whether the node is ready and takes pods."),
        Column("Roles", description="The roles of the node."),
        AGE,
        Column("Version", description="Version of the node's kubelet."),
        Column("Internal-IP", priority=1),
        Column("External-IP", priority=1),
        Column("OS-Image", priority=1),
        Column("Kernel-Version", priority=1),
        Column("Container-Runtime", priority=1),
    )
    has_generation = False

    def prepare_create(self, obj: Object) -> None:
        """A kubelet registers itself with its status, so unlike elsewhere status stays."""

    def prepare_update(self, obj: Object, old: Object) -> None:
        super().prepare_update(obj, old)

    def fields(self, obj: Object) -> dict[str, str]:
        return {"spec.unschedulable": "true" if (obj.get("spec") or {}).get("unschedulable") else "false"}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        status = obj.get("status") or {}
        info = status.get("nodeInfo") or {}
        addresses = status.get("addresses") or []
        return [
            name_of(obj),
            _status(obj),
            ",".join(_roles(obj)) or NONE,
            age(created(obj), now),
            info.get("kubeletVersion") or "",
            _address(addresses, "InternalIP"),
            _address(addresses, "ExternalIP"),
            info.get("osImage") or "<unknown>",
            info.get("kernelVersion") or "<unknown>",
            info.get("containerRuntimeVersion") or "<unknown>",
        ]


def _status(node: Object) -> str:
    ready = {c.get("type"): c.get("status") for c in (node.get("status") or {}).get("conditions") or ()}.get("Ready")
    shown = ["Unknown" if ready is None else "Ready" if ready == "True" else "NotReady"]
    if (node.get("spec") or {}).get("unschedulable"):
        shown.append("SchedulingDisabled")
    return ",".join(shown)


def _roles(node: Object) -> list[str]:
    roles = set()
    for key, value in (node.get("metadata", {}).get("labels") or {}).items():
        if key.startswith(_ROLE_PREFIX) and len(key) > len(_ROLE_PREFIX):
            roles.add(key[len(_ROLE_PREFIX) :])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    return sorted(roles)


def _address(addresses: list[Object], kind: str) -> str:
    return next((a.get("address", "") for a in addresses if a.get("type") == kind), NONE)
