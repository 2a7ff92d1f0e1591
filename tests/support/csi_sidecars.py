"""Sidecars of a CSI driver in a cluster (external-provisioner, external-attacher, external-resizer), for one driver.

They talk to the API alone, with the annotations, finalizers and statuses that the real ones write.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kube.api import core_v1, meta_v1, storage_v1
from kube.client import STRATEGIC, Client
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Informer
from kube.quantity import value
from kube.volume_binding import PROVISIONER, SELECTED_NODE
from tests.support.csi_driver import CSIDriver

Claim, Volume, Attachment = core_v1.PersistentVolumeClaim, core_v1.PersistentVolume, storage_v1.VolumeAttachment


class Sidecars:
    """The three helpers; `attach_error` makes attaching fail with its text."""

    def __init__(self, client: Client, driver: CSIDriver) -> None:
        self._client, self._driver = client, driver
        self.attach_error = ""
        self.attacher = f"external-attacher/{driver.name.replace('.', '-')}"

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            for kind, reconcile in ((Claim, self._claim), (Volume, self._volume), (Attachment, self._attachment)):
                self._follow(group, kind, reconcile)

    def _follow(self, group: asyncio.TaskGroup, kind: type[Any], reconcile: Callable[[Any], Awaitable[None]]) -> None:
        informer: Informer[Any] = Informer(self._client, kind)

        async def work(key: str) -> None:
            if (found := informer.get(key)) is not None:
                await reconcile(found)

        controller = Controller(kind.__name__, work, workers=1)
        informer.subscribe(lambda change: controller.enqueue(change.key))
        group.create_task(informer.run())
        group.create_task(controller.run())

    # -- provisioner and resizer ------------------------------------------------------------------------------------
    async def _claim(self, claim: core_v1.PersistentVolumeClaim) -> None:
        name = f"pvc-{claim.metadata.uid}"
        if not claim.spec.volume_name:
            if claim.metadata.annotations.get(PROVISIONER) == self._driver.name:
                await self._provision(claim, name)
            return
        wanted = claim.spec.resources.requests.get("storage", "0") if claim.spec.resources else "0"
        if claim.status.phase != "Bound" or value(claim.status.capacity.get("storage", "0")) >= value(wanted):
            return
        volume = await self._client.get(Volume, claim.spec.volume_name)
        if volume.spec.csi is None or volume.spec.csi.driver != self._driver.name:
            return
        if value(volume.spec.capacity["storage"]) < value(wanted):
            await self._client.patch(
                Volume, volume.metadata.name or "", "", {"spec": {"capacity": {"storage": wanted}}}
            )
            condition = {
                "type": "FileSystemResizePending",
                "status": "True",
                "message": "Waiting for user to (re-)start a pod to finish file system resize of volume on node.",
            }
            status = {
                "conditions": [condition],
                "allocatedResources": {"storage": wanted},
                "allocatedResourceStatuses": {"storage": "NodeResizePending"},
            }
            await self._client.patch(
                Claim,
                claim.metadata.name or "",
                claim.metadata.namespace or "",
                {"status": status},
                type=STRATEGIC,
                subresource="status",
            )

    async def _provision(self, claim: core_v1.PersistentVolumeClaim, name: str) -> None:
        terms = []
        if node := claim.metadata.annotations.get(SELECTED_NODE):
            key = next(iter(self._driver.topology), "kubernetes.io/hostname")
            where = core_v1.NodeSelectorRequirement(key=key, operator="In", values=[node])
            terms = [core_v1.NodeSelectorTerm(match_expressions=[where])]
        affinity = core_v1.VolumeNodeAffinity(required=core_v1.NodeSelector(node_selector_terms=terms))
        volume = core_v1.PersistentVolume(
            metadata=meta_v1.ObjectMeta(name=name, annotations={"pv.kubernetes.io/provisioned-by": self._driver.name}),
            spec=core_v1.PersistentVolumeSpec(
                capacity={"storage": claim.spec.resources.requests["storage"]} if claim.spec.resources else {},
                access_modes=claim.spec.access_modes,
                persistent_volume_reclaim_policy="Delete",
                storage_class_name=claim.spec.storage_class_name,
                volume_mode=claim.spec.volume_mode,
                csi=core_v1.CSIPersistentVolumeSource(
                    driver=self._driver.name,
                    volume_handle=name,
                    fs_type="ext4",
                    volume_attributes={"made-by": "sidecars"},
                ),
                node_affinity=affinity if terms else None,
                claim_ref=core_v1.ObjectReference(
                    api_version="v1",
                    kind="PersistentVolumeClaim",
                    namespace=claim.metadata.namespace,
                    name=claim.metadata.name,
                    uid=claim.metadata.uid,
                ),
            ),
        )
        try:
            await self._client.create(volume)
        except StatusError as error:
            if not error.already_exists:
                raise

    async def _volume(self, volume: core_v1.PersistentVolume) -> None:
        ours = volume.spec.csi is not None and volume.spec.csi.driver == self._driver.name
        done = volume.status.phase == "Released" and volume.spec.persistent_volume_reclaim_policy == "Delete"
        if ours and done and volume.metadata.deletion_timestamp is None:
            await self._client.delete(Volume, volume.metadata.name or "")

    # -- attacher -----------------------------------------------------------------------------------------------------
    async def _attachment(self, attachment: storage_v1.VolumeAttachment) -> None:
        name, metadata = attachment.metadata.name or "", attachment.metadata
        if attachment.spec.attacher != self._driver.name:
            return
        if metadata.deletion_timestamp is not None:
            if self.attacher in metadata.finalizers:
                left = [finalizer for finalizer in metadata.finalizers if finalizer != self.attacher]
                changed = msgspec.structs.replace(metadata, finalizers=left)
                await self._client.update(msgspec.structs.replace(attachment, metadata=changed))
            return
        if self.attacher not in metadata.finalizers:
            changed = msgspec.structs.replace(metadata, finalizers=[*metadata.finalizers, self.attacher])
            attachment = await self._client.update(msgspec.structs.replace(attachment, metadata=changed))
        if self.attach_error:
            problem: dict[str, Any] = {"message": self.attach_error, "time": "2026-01-01T00:00:00Z"}
            status: dict[str, Any] = {"attached": False, "attachError": problem}
        elif not attachment.status.attached:
            status = {"attached": True, "attachmentMetadata": {"device": "/dev/none"}, "attachError": None}
        else:
            return
        await self._client.patch(Attachment, name, "", {"status": status}, subresource="status")
