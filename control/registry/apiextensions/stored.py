"""Reads stored CustomResourceDefinitions to serve, establish or delete; not each object in their folder is a definition.

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


class Definition(msgspec.Struct):
    """The fields of a definition that are read before it is compiled."""

    metadata: _Metadata
    spec: _Spec
    status: _Status | None = None

    @property
    def name(self) -> str:
        return self.metadata.name

    def holds(self, kind: str) -> bool:
        """Return whether a condition is True."""
        conditions = (self.status.conditions if self.status is not None else None) or ()
        return next((each.status == "True" for each in conditions if each.type == kind), False)

    @property
    def resources(self) -> set[str]:
        """Its accepted names of resources."""
        names = self._accepted
        return set(filter(None, (names.plural, names.singular, *(names.shortNames or ()))))

    @property
    def kinds(self) -> set[str]:
        """Its accepted names of kinds."""
        return set(filter(None, (self._accepted.kind, self._accepted.listKind)))

    @property
    def servable(self) -> bool:
        """True if its objects may be served, changed and deleted."""
        return not overlaps(self.spec.group, self.spec.names.plural or "")

    @property
    def _accepted(self) -> _Names:
        return (self.status.acceptedNames if self.status is not None else None) or _Names()

    def is_named(self) -> bool:
        """Return whether it has the name of a definition, and a version that is stored.

        Groups have a dot: the folder of group "pods" and plural "default" would be that of the pods of a namespace.
        """
        spec = self.spec
        named = (
            bool(spec.names.plural and spec.names.kind)
            and "." in spec.group
            and self.metadata.name == f"{spec.names.plural}.{spec.group}"
        )
        return named and any(version.storage for version in spec.versions)


_decoder = msgspec.json.Decoder(Definition)


def read(data: bytes) -> Definition | None:
    """Return the definition in an object's JSON, None for an object that is none."""
    try:
        found = _decoder.decode(data)
    except msgspec.ValidationError:
        return None
    return found if found.is_named() else None


def readable(obj: Object) -> bool:
    """Return whether an object in the folder of definitions has the form and the name of one."""
    try:
        return msgspec.convert(obj, Definition).is_named()
    except msgspec.ValidationError:
        return False


def folder(group: str, plural: str) -> str:
    """Return the prefix of the keys of a custom resource's objects: "/registry/stable.example.com/crontabs/"."""
    return f"/registry/{group}/{plural}/"


def overlaps(group: str, plural: str) -> bool:
    """Return whether a definition's objects would be stored among those of a built-in resource."""
    return folder(group, plural) in BUILT_IN_FOLDERS


def servable(obj: Object) -> bool:
    """Return whether objects of a stored definition may be served, changed and deleted."""
    return readable(obj) and not overlaps(obj["spec"]["group"], obj["spec"]["names"]["plural"])
