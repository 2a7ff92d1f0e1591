"""Allocations of one write of a Service, to release them if it fails; and the error messages."""

from __future__ import annotations

import msgspec

from kube.errors import FieldError, StatusError, invalid
from kube.ip_addresses import family
from kube.json_object import Object

HEADLESS = "None"


def family_of(address: str) -> str:
    """Return the family of an address in any form, for what is none IPv4."""
    return family(address) or "IPv4"


class ServiceAllocations(msgspec.Struct):
    """Addresses and ports, and their records in the store, taken for an owner (namespace/name)."""

    owner: str
    addresses: list[str] = msgspec.field(default_factory=list)
    ports: list[int] = msgspec.field(default_factory=list)
    records: list[str] = msgspec.field(default_factory=list)
    port_records: list[int] = msgspec.field(default_factory=list)


def owner_of(service: Object) -> str:
    metadata = service.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def refuse(obj: Object, *problems: FieldError) -> StatusError:
    """Return the 422 for fields of a Service."""
    return invalid("", "Service", (obj.get("metadata") or {}).get("name", ""), list(problems))
