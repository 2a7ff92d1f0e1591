"""Informers of metadata alone, for any resource that the server has, custom ones included.

An object is decoded into the few fields that ownership needs; the rest of its JSON is skipped over. The lists of a group
version, which one extension server may serve, are requested a few at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from control.controllers.discovery import DiscoveredResource
from kube import serialize
from kube.client import Client, ListResult, WatchEvent, answered, decoded, lines
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


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str | None = None


class _List(msgspec.Struct):
    items: list[msgspec.Raw] | None = None
    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)


class MetadataClient(Client):
    """A client whose list and watch bring the metadata of one resource."""

    def __init__(self, client: Client, resource: DiscoveredResource, places: asyncio.Semaphore) -> None:
        """Share `places` among the lists of a group version."""
        super().__init__(client.transport)
        self._resource, self._places = resource, places

    async def list(self, kind: Any, namespace: str = "", **options: Any) -> ListResult[Any]:
        path = self._resource.path(namespace)
        async with self._places:
            found = answered(await self.call("GET", path), _List, path)
            items = [item async for item in decoded(found.items or (), Partial, path)]
        return ListResult(items, found.metadata.resource_version or "")

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
