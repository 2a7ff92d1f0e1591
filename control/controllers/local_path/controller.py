"""Makes volumes for claims of the class `local-path`, and has their folders removed when the claims are gone.

The class waits for a pod (WaitForFirstConsumer): the scheduler names the node, the volume's folder is made by that node's agent
when the pod mounts it, and removed by it when requested through the API server's node proxy (removals.py). A finalizer keeps
the volume's object until then; if the node itself is gone from the cluster, so is the folder. Claims and volumes have queues of
their own, and no worker waits for a node.
"""

from __future__ import annotations

import asyncio

import msgspec

from control.controllers.context import Context
from control.controllers.local_path import plan
from control.controllers.local_path.removals import FolderRemovals
from kube import cancellation
from kube.api import core_v1, storage_v1
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of
from kube.volume_binding import PROVISIONER, SELECTED_NODE, class_of


class LocalPathProvisioner:
    """Follows claims, volumes, classes and nodes."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder(plan.PROVISIONER)
        self._claims = context.informers.of(core_v1.PersistentVolumeClaim)
        self._volumes = context.informers.of(core_v1.PersistentVolume)
        self._classes = context.informers.of(storage_v1.StorageClass)
        self._nodes = context.informers.of(core_v1.Node)
        self.claims = Controller("local-path provisioner", self._reconcile_claim, workers=2, clock=context.clock)
        self.volumes = Controller("local-path volumes", self._reconcile_volume, workers=2, clock=context.clock)
        self._removals = FolderRemovals(self._client, context.clock, self._recorder, self._nodes, self.volumes.enqueue)
        self._claims.subscribe(self._claim_changed)
        self._volumes.subscribe(self._volume_changed)
        self._nodes.subscribe(self._node_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._ensure_class()
        try:
            async with asyncio.TaskGroup() as group:
                for controller in (self.claims, self.volumes):
                    cancellation.start(group, controller.run, controller.name)
        finally:
            await self._removals.close()

    async def _ensure_class(self) -> None:
        """Create a StorageClass if the cluster has none."""
        if self._classes.list():
            return
        try:
            await self._client.create(plan.storage_class())
        except StatusError as error:
            if not error.already_exists:
                raise

    # -- events -----------------------------------------------------------------------------------------------------
    def _claim_changed(self, change: Change[core_v1.PersistentVolumeClaim]) -> None:
        claim = change.new
        if change.type != "DELETED" and claim.metadata.annotations.get(PROVISIONER) == plan.PROVISIONER:
            self.claims.enqueue(change.key)

    def _volume_changed(self, change: Change[core_v1.PersistentVolume]) -> None:
        if plan.is_ours(change.new):
            self.volumes.enqueue(change.key)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        if change.type == "DELETED":
            for volume in self._volumes.list():
                if plan.is_ours(volume) and plan.is_done_with(volume):
                    self._removals.restart(name_of(volume))
                    self.volumes.enqueue(name_of(volume))

    async def _reconcile_claim(self, key: str) -> None:
        if (claim := self._claims.get(key)) is not None:
            await self._provision(claim)

    async def _reconcile_volume(self, key: str) -> None:
        if (volume := self._volumes.get(key)) is not None:
            await self._end(volume)
        else:
            self._removals.forget(key)

    # -- claims -----------------------------------------------------------------------------------------------------
    async def _provision(self, claim: core_v1.PersistentVolumeClaim) -> None:
        if claim.spec.volume_name or claim.metadata.deletion_timestamp is not None:
            return
        storage = self._classes.get(class_of(claim))
        chosen = claim.metadata.annotations.get(SELECTED_NODE)
        if storage is None or storage.provisioner != plan.PROVISIONER or self._volumes.get(plan.volume_name(claim)):
            return
        try:
            if chosen is None:
                raise plan.CannotProvision("the class must have volumeBindingMode WaitForFirstConsumer")
            node = self._nodes.get(chosen)
            if node is None:
                raise plan.CannotProvision(f"node {chosen} is not known")
            volume = plan.volume_for(claim, storage, node)
        except plan.CannotProvision as error:
            text = f'failed to provision volume with StorageClass "{storage.metadata.name}": {error}'
            self._recorder.event(claim, "Warning", "ProvisioningFailed", text)
            return
        text = f'External provisioner is provisioning volume for claim "{key_of(claim)}"'
        self._recorder.event(claim, "Normal", "Provisioning", text)
        try:
            await self._client.create(volume)
        except StatusError as error:
            if not error.already_exists:
                raise
        text = f"Successfully provisioned volume {volume.metadata.name}"
        self._recorder.event(claim, "Normal", "ProvisioningSucceeded", text)

    # -- volumes ----------------------------------------------------------------------------------------------------
    async def _end(self, volume: core_v1.PersistentVolume) -> None:
        """Remove the folder, then the object; a folder that is to be retained stays."""
        leaving = volume.metadata.deletion_timestamp is not None
        if plan.is_done_with(volume) and not leaving:
            await self._client.delete(core_v1.PersistentVolume, name_of(volume))
            return  # its change brings us back
        if not leaving or plan.FINALIZER not in volume.metadata.finalizers:
            return
        if volume.spec.persistent_volume_reclaim_policy == "Delete" and not self._removals.removed(volume):
            return  # the end of the removal brings us back
        finalizers = [name for name in volume.metadata.finalizers if name != plan.FINALIZER]
        metadata = msgspec.structs.replace(volume.metadata, finalizers=finalizers)
        await self._client.update(msgspec.structs.replace(volume, metadata=metadata))
