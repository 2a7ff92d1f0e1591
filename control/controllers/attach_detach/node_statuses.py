"""Writes node statuses: status.volumesAttached lists the volumes that are attached.

A volume is taken out of the list by compare and swap: the node is read from the API server, and the list is written against
the revision that did not have the volume in use. A list that the cache shows empty may have been filled since.
"""

from __future__ import annotations

from control.controllers.context import Context
from kube.api import core_v1, storage_v1
from kube.client import Client
from kube.csi import attached_volume, unique_name
from kube.errors import StatusError
from kube.locks import Locks
from kube.object_names import name_of

BY_NODE = "attached-to"


class NodeStatuses:
    """Writes the nodes' lists, one writer a node at a time."""

    def __init__(self, context: Context) -> None:
        self._client: Client = context.client
        self._nodes = context.informers.of(core_v1.Node)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        self._attachments = context.informers.of(storage_v1.VolumeAttachment)
        self._attachments.add_index(BY_NODE, lambda a: [a.spec.node_name])
        self._locks = Locks()
        self._leaving: set[str] = set()
        """Attachments that are no longer listed in the status of their node."""

    async def reconcile(self, name: str) -> None:
        """Have a node's status list what is attached to it."""
        node = self._nodes.get(name)
        if node is None or _reported(node) == self._attached(name):
            return
        async with self._locks.of(name):
            found = await self._now(name)
            if found is not None:
                await self._write(found)

    async def leave(self, attachment: storage_v1.VolumeAttachment, *, forced: bool) -> bool:
        """Take a volume off its node's list; return False, with nothing done, where the node uses it now and is not forced."""
        name = attachment.spec.node_name
        self._leaving.add(name_of(attachment))
        try:
            async with self._locks.of(name):
                node = await self._now(name)
                if node is not None and (
                    forced or not attached_volume(name_of(attachment), name, node.status.volumes_in_use)
                ):
                    await self._write(node)
                    node = None
        except BaseException:
            self.stays(name_of(attachment))
            raise
        if node is not None:
            self.stays(name_of(attachment))
        return node is None

    def stays(self, attachment: str) -> None:
        """An attachment is gone, or its node's status must list it again."""
        self._leaving.discard(attachment)

    async def _now(self, name: str) -> core_v1.Node | None:
        try:
            return await self._client.get(core_v1.Node, name)
        except StatusError as error:
            if error.not_found:
                return None
            raise

    async def _write(self, node: core_v1.Node) -> None:
        wanted = self._attached(name_of(node))
        if _reported(node) == wanted:
            return
        body = {
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "status": {"volumesAttached": [{"name": volume, "devicePath": ""} for volume in wanted] or None},
        }
        await self._client.patch(core_v1.Node, name_of(node), "", body, subresource="status")

    def _attached(self, name: str) -> list[str]:
        """List what is attached to a node and stays there."""
        found = set()
        for attachment in self._attachments.by_index(BY_NODE, name):
            source = attachment.spec.source
            volume = self._volumes.get((source.persistent_volume_name if source is not None else None) or "")
            leaving = attachment.metadata.deletion_timestamp is not None or name_of(attachment) in self._leaving
            if attachment.status.attached and not leaving and volume is not None and volume.spec.csi is not None:
                found.add(unique_name(volume.spec.csi.driver, volume.spec.csi.volume_handle))
        return sorted(found)


def _reported(node: core_v1.Node) -> list[str]:
    return sorted(volume.name for volume in node.status.volumes_attached)
