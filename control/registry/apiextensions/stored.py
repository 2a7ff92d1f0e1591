"""Stored definitions as those read them who serve, establish or delete: not each object in their folder is a definition.

A definition named as the resource of definitions, or as that of APIServices, has the folder of the built-in kind for its own
objects (upstream: OverlappingBuiltInResources, kubernetes#78707). Objects that were written through it went through no
validation of definitions, and to delete the objects of such a definition would delete all definitions or APIServices.
"""

from __future__ import annotations

import msgspec

from kube.json_object import Object
from kube.resources import RESOURCES

BUILT_IN_FOLDERS = frozenset(resource.storage_prefix for resource in RESOURCES)


class _Names(msgspec.Struct):
    plural: str | None = None
    kind: str | None = None
    singular: str | None = None
    listKind: str | None = None
    shortNames: list[str] | None = None
    categories: list[str] | None = None


class _Version(msgspec.Struct):
    name: str
    served: bool | None = None
    storage: bool | None = None


class _Spec(msgspec.Struct):
    group: str
    scope: str
    names: _Names
    versions: list[_Version]


class _Condition(msgspec.Struct):
    type: str | None = None
    status: str | None = None


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None
    acceptedNames: _Names | None = None
    storedVersions: list[str] | None = None


class _Metadata(msgspec.Struct):
    name: str


class _Definition(msgspec.Struct):
    """The fields of a definition that are read before it is compiled."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None


def readable(obj: Object) -> bool:
    """Return whether an object in the folder of definitions has the form and the name of one.

    Groups have a dot: the folder of group "pods" and plural "default" would be that of the pods of a namespace.
    """
    try:
        found = msgspec.convert(obj, _Definition)
    except msgspec.ValidationError:
        return False
    spec = found.spec
    named = (
        bool(spec.names.plural and spec.names.kind)
        and "." in spec.group
        and found.metadata.name == f"{spec.names.plural}.{spec.group}"
    )
    return named and any(version.storage for version in spec.versions)


def folder(group: str, plural: str) -> str:
    """Return the prefix of the keys of a custom resource's objects: "/registry/stable.example.com/crontabs/"."""
    return f"/registry/{group}/{plural}/"


def overlaps(group: str, plural: str) -> bool:
    """Return whether a definition's objects would be stored among those of a built-in resource."""
    return folder(group, plural) in BUILT_IN_FOLDERS


def servable(obj: Object) -> bool:
    """Return whether objects of a stored definition may be served, changed and deleted."""
    return readable(obj) and not overlaps(obj["spec"]["group"], obj["spec"]["names"]["plural"])
