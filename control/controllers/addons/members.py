"""Members of an ApplySet: the metadata of the objects that have its label, listed by kind and namespace."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from control.controllers.addons.applyset import EVERYTHING, PART_OF, GroupKind
from control.controllers.addons.kinds import Kinds
from control.controllers.discovery import METADATA_LIST, DiscoveredResource
from control.controllers.step_counter import REQUEST_STEPS, StepCounter
from kube import serialize
from kube.client import Client, answered, decoded
from kube.errors import StatusError

FIELD_MANAGER = "wherry-addons"
MOST_LISTED_APART = 16
"""Namespaces whose objects of a kind are requested each by itself. Those of more namespaces are requested at once."""
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"


class _Manager(msgspec.Struct):
    manager: str = ""
    operation: str = ""


class _Metadata(msgspec.Struct, rename="camel"):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] | None = None
    managed_fields: list[_Manager] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


@dataclass(frozen=True, slots=True, order=True)
class Key:
    """An object, whatever its version. `namespace` is empty for cluster-scoped kinds."""

    kind: GroupKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Member:
    """The metadata of an object."""

    key: Key
    resource: DiscoveredResource
    uid: str
    version: str
    part_of: str
    applied: bool
    """True if this program applied it: a label is copied easily, for instance from a Service to its EndpointSlices."""
    leaving: bool


async def listed(
    client: Client, kinds: Kinds, applyset: str, group_kinds: Collection[GroupKind], namespaces: Collection[str]
) -> dict[Key, Member]:
    """Return the objects with an ApplySet's label. Raise StatusError, StaleGroup."""
    found: dict[Key, Member] = {}
    counter, together = StepCounter(), EVERYTHING in namespaces or len(namespaces) > MOST_LISTED_APART
    for resource in kinds.pruned(group_kinds):
        for namespace in sorted(namespaces) if resource.namespaced and not together else ("",):
            await counter.count(REQUEST_STEPS)
            path = resource.path(namespace)
            try:
                data = await client.call(
                    "GET", path, query={"labelSelector": f"{PART_OF}={applyset}"}, accept=METADATA_LIST
                )
            except StatusError as error:
                if error.not_found:
                    continue
                raise
            items = answered(data, _List, path).items or ()
            async for each in decoded(items, _Object, path):
                where = namespace or each.metadata.namespace
                if not resource.namespaced or where in namespaces or EVERYTHING in namespaces:
                    member = _member(resource, where, each.metadata)
                    found[member.key] = member
    return found


async def read(client: Client, resource: DiscoveredResource, namespace: str, name: str) -> Member | None:
    """Return the metadata of an object, None if it does not exist. Raise StatusError."""
    path = resource.path(namespace, name)
    try:
        data = await client.call("GET", path, accept=METADATA)
    except StatusError as error:
        if error.not_found:
            return None
        raise
    return _member(resource, namespace, answered(data, _Object, path).metadata)


def identity(data: bytes, path: str) -> tuple[str, str]:
    """Return UID and resourceVersion of an answer with an object. Raise StatusError."""
    metadata = answered(data, _Object, path).metadata
    return metadata.uid, metadata.resource_version


async def delete(client: Client, member: Member) -> None:
    """Delete an object, unless it was changed or replaced since it was listed. Raise StatusError."""
    options = {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "propagationPolicy": "Background",
        "preconditions": {"uid": member.uid, "resourceVersion": member.version},
    }
    path = member.resource.path(member.key.namespace, member.key.name)
    try:
        await client.call("DELETE", path, body=serialize.encode_readable(options))
    except StatusError as error:
        if not error.not_found:
            raise


def _member(resource: DiscoveredResource, namespace: str, metadata: _Metadata) -> Member:
    """`namespace` is that of the request if it has one: an extension server may answer with another."""
    return Member(
        Key(GroupKind.of(resource), namespace if resource.namespaced else "", metadata.name),
        resource,
        metadata.uid,
        metadata.resource_version,
        (metadata.labels or {}).get(PART_OF, ""),
        any(each.manager == FIELD_MANAGER and each.operation == "Apply" for each in metadata.managed_fields or ()),
        metadata.deletion_timestamp is not None,
    )
