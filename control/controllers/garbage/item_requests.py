"""The garbage collector's requests for one object: live reads, and writes under the condition of what was read.

A write names the UID and the resourceVersion of the object that was read just before, so that it never changes another object
of the same name, nor one whose owners have changed.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.controllers.discovery import ONE_OBJECT_BYTES, DiscoveredResource
from control.controllers.garbage.graph import Item
from control.controllers.garbage.metadata import Owner, Partial
from kube.client import MERGE, Client, answered
from kube.errors import StatusError


class ItemRequests:
    """Reads, patches and deletes objects of any resource."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def find(self, resource: DiscoveredResource, namespace: str, name: str) -> Partial | None:
        """Request an object; return None if it is not found."""
        try:
            path = resource.path(namespace, name)
            data = await self._client.call("GET", path, most_bytes=ONE_OBJECT_BYTES)
        except StatusError as error:
            if error.not_found:
                return None
            raise
        return answered(data, Partial, path)

    async def live(self, item: Item) -> Partial | None:
        """Return the object as it is now; None if it is gone or another has its name."""
        live = await self.find(item.resource, item.namespace, item.name)
        return live if live is not None and live.metadata.uid == item.uid else None

    async def _patch(self, item: Item, live: Partial, metadata: dict[str, Any]) -> None:
        """Change an object's metadata if its resourceVersion is unchanged."""
        patch = {"metadata": {"uid": item.uid, "resourceVersion": live.metadata.resource_version, **metadata}}
        path = item.resource.path(item.namespace, item.name)
        await self._client.call("PATCH", path, body=msgspec.json.encode(patch), content_type=MERGE)

    async def drop_owners(self, item: Item, uids: set[str]) -> None:
        """Remove the references to owners from an object."""
        live = await self.live(item)
        if live is None:
            return
        kept = [owner for owner in live.metadata.owner_references if owner.uid not in uids]
        if len(kept) != len(live.metadata.owner_references):
            await self._patch(item, live, {"ownerReferences": _plain(kept)})

    async def unblock(self, item: Item) -> None:
        """Let an object's owners be deleted before it: blockOwnerDeletion becomes false in all of its references."""
        live = await self.live(item)
        if live is not None:
            free = [
                msgspec.structs.replace(owner, block_owner_deletion=False) for owner in live.metadata.owner_references
            ]
            await self._patch(item, live, {"ownerReferences": _plain(free)})

    async def drop_finalizer(self, item: Item, finalizer: str) -> None:
        """Remove a finalizer from an object."""
        live = await self.live(item)
        if live is not None and finalizer in live.metadata.finalizers:
            kept = [name for name in live.metadata.finalizers if name != finalizer]
            await self._patch(item, live, {"finalizers": kept or None})

    async def delete(self, item: Item, policy: str) -> None:
        """Delete an object if it is still the one, in the state, that was judged."""
        live = await self.live(item)
        if live is None or live.metadata.deletion_timestamp is not None:
            return
        if {owner.uid for owner in live.metadata.owner_references} != {owner.uid for owner in item.owners}:
            return  # its owners changed: the watch will deliver the change, which causes another check
        options = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "propagationPolicy": policy,
            "preconditions": {"uid": item.uid, "resourceVersion": live.metadata.resource_version},
        }
        try:
            path = item.resource.path(item.namespace, item.name)
            await self._client.call("DELETE", path, body=msgspec.json.encode(options))
        except StatusError as error:
            if not error.not_found:
                raise


def _plain(owners: list[Owner]) -> list[dict[str, Any]] | None:
    plain: list[dict[str, Any]] = [
        {k: v for k, v in msgspec.to_builtins(owner).items() if v is not None} for owner in owners
    ]
    return plain or None
