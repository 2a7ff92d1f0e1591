"""Informers of metadata alone, for any resource that the server has, custom ones included.

An object is decoded into the few fields that ownership needs; the rest of its JSON is skipped over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec

from control.controllers.discovery import DiscoveredResource
from kube import serialize
from kube.client import Client, ListResult, WatchEvent, lines
from kube.errors import StatusError


class Owner(msgspec.Struct, rename="camel", gc=False, frozen=True):
    """An owner reference."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    block_owner_deletion: bool | None = None
    controller: bool | None = None


class Metadata(msgspec.Struct, rename="camel", gc=False):
    """As much of ObjectMeta as informers and the garbage collector read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    finalizers: list[str] = []
    owner_references: list[Owner] = []
    managed_fields: list[Any] | None = None
    """Never read; informers set it."""


class Partial(msgspec.Struct, rename="camel", gc=False):
    """Any object, of which only the metadata are of interest."""

    metadata: Metadata = msgspec.field(default_factory=Metadata)


class _Decoded(msgspec.Struct, gc=False):
    type: str
    object: msgspec.Raw


class _List(msgspec.Struct):
    items: list[Partial] | None = None
    metadata: dict[str, Any] = {}


class MetadataClient(Client):
    """A client whose list and watch bring the metadata of one resource."""

    def __init__(self, client: Client, resource: DiscoveredResource) -> None:
        super().__init__(client.transport)
        self._resource = resource

    async def list(self, kind: Any, namespace: str = "", **options: Any) -> ListResult[Any]:
        data = await self.call("GET", self._resource.path(namespace))
        found = serialize.decode(data, _List)
        return ListResult(found.items or [], found.metadata.get("resourceVersion", ""))

    async def watch(
        self, kind: Any, namespace: str = "", *, resource_version: str = "", **options: Any
    ) -> AsyncIterator[WatchEvent[Any]]:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": resource_version}
        async with self.transport.stream(self._resource.path(namespace), query=query) as chunks:
            async for line in lines(chunks):
                event = serialize.decode(line, _Decoded)
                if event.type == "ERROR":
                    raise StatusError.from_status(msgspec.json.decode(event.object))
                yield WatchEvent(event.type, serialize.decode(bytes(event.object), Partial))
