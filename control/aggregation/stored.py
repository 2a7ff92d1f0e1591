"""Stored APIServices as the server reads them: not each object in their folder is one.

A definition named as the resource of APIServices had their folder for its own objects, which went through no validation of
APIServices (see control.registry.apiextensions.stored).
"""

from __future__ import annotations

import msgspec

from control.aggregation.registrations import name_of
from kube.json_object import Object


class _Service(msgspec.Struct):
    namespace: str
    name: str
    port: int | None = None


class _Spec(msgspec.Struct):
    version: str
    group: str = ""
    service: _Service | None = None
    caBundle: str | None = None
    insecureSkipTLSVerify: bool | None = None


class _Condition(msgspec.Struct):
    type: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Metadata(msgspec.Struct):
    name: str


class _APIService(msgspec.Struct):
    """The fields of an APIService that are read."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def readable(obj: Object) -> bool:
    """Return whether an object in the folder of APIServices has the form and the name of one."""
    try:
        found = msgspec.convert(obj, _APIService)
    except msgspec.ValidationError:
        return False
    return found.metadata.name == name_of(found.spec.group, found.spec.version)


def available(obj: Object) -> Object:
    """Return the condition Available of an APIService, an empty object if it has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((c for c in conditions if c.get("type") == "Available"), {})
