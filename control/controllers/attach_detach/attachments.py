"""Creates VolumeAttachments. For a volume of one node only, the existing attachments are listed first.

The cache may not show yet what was created a moment ago, by this controller or by the leader before it: a volume would be
attached to two nodes, which both write to it. So the API server is asked, and one attachment of a volume is made at a time.
"""

from __future__ import annotations

from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.csi import attachment_name, unique_name
from kube.errors import StatusError
from kube.locks import Locks
from kube.object_names import name_of


class AttachmentCreator:
    """Attaches volumes; each by the name of driver and handle, which several PersistentVolumes may share."""

    def __init__(self, client: Client) -> None:
        self._client, self._locks = client, Locks()

    async def attach(self, volume: core_v1.PersistentVolume, node: str, *, shared: bool) -> bool:
        """Attach a volume to a node; return False if another has it and it is not `shared`."""
        assert volume.spec.csi is not None, volume.metadata.name
        async with self._locks.of(unique_name(volume.spec.csi.driver, volume.spec.csi.volume_handle)):
            if not shared and await self._is_elsewhere(volume.spec.csi, node):
                return False
            await self._create(volume, volume.spec.csi, node)
            return True

    async def _is_elsewhere(self, source: core_v1.CSIPersistentVolumeSource, node: str) -> bool:
        for attachment in (await self._client.list(storage_v1.VolumeAttachment)).items:
            where = attachment.spec.node_name
            if where != node and name_of(attachment) == attachment_name(source.driver, source.volume_handle, where):
                return True
        return False

    async def _create(
        self, volume: core_v1.PersistentVolume, source: core_v1.CSIPersistentVolumeSource, node: str
    ) -> None:
        wanted = storage_v1.VolumeAttachment(
            metadata=meta_v1.ObjectMeta(name=attachment_name(source.driver, source.volume_handle, node)),
            spec=storage_v1.VolumeAttachmentSpec(
                attacher=source.driver,
                node_name=node,
                source=storage_v1.VolumeAttachmentSource(persistent_volume_name=name_of(volume)),
            ),
        )
        try:
            await self._client.create(wanted)
        except StatusError as error:
            if not error.already_exists:
                raise
