"""The attach/detach controller: a VolumeAttachment for each CSI volume on each node that needs it.

It writes wishes: the driver's own controller attaches and says so in the VolumeAttachment. What is attached is told to the node
in its status, which waits for that before it uses the volume. For detaching the order is what keeps data whole: out of
the node's status.volumesAttached first, then a look at its volumesInUse as it is now, then the VolumeAttachment goes. A node
that comes to use the volume meanwhile sees that it is not attached. All state is in the API but for how long was waited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from control.controllers.attach_detach import plan
from control.controllers.attach_detach.telling import Telling
from control.controllers.context import Context
from control.controllers.nodes.lifecycle import ON_NODE, by_node
from control.controllers.pods import is_terminal
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import name_of
from kube.controller import Controller
from kube.csi import attachment_name, is_attachment_name, unique_name
from kube.errors import StatusError
from kube.informer import Change
from kube.volume_binding import claim_names

MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
_BY_CLAIM, _BY_VOLUME, _BY_NODE, _BY_HANDLE = "volume-claim", "attached-volume", "attached-to", "csi-handle"


class AttachDetachController:
    """Follows pods, claims, volumes, attachments, nodes and drivers; works by PersistentVolume."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._telling = Telling(context.recorder("attachdetach-controller"), lambda v: self._pods_by_node([v]))
        of = context.informers.of
        self._pods, self._nodes = of(core_v1.Pod), of(core_v1.Node)
        self._claims, self._volumes = of(core_v1.PersistentVolumeClaim), of(core_v1.PersistentVolume)
        self._attachments, self._drivers = of(storage_v1.VolumeAttachment), of(storage_v1.CSIDriver)
        self._pods.add_index(_BY_CLAIM, _claims_of)
        self._pods.add_index(ON_NODE, by_node)
        self._volumes.add_index(_BY_HANDLE, lambda volume: [_unique(volume)] if volume.spec.csi else [])
        self._attachments.add_index(_BY_VOLUME, lambda a: [_volume_of(a)])
        self._attachments.add_index(_BY_NODE, lambda a: [a.spec.node_name])
        self._since: dict[tuple[str, str], float] = {}
        """Volume and node: when it was first found that a node should let go."""
        self._detaching: set[str] = set()
        """Attachments that are no longer told to their node."""
        self.volumes = Controller("attach and detach", self.reconcile, workers=4, clock=self._clock)
        self.nodes = Controller("attached volumes", self.reconcile_node, workers=2, clock=self._clock)
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(lambda change: self._enqueue(change.new.spec.volume_name))
        self._volumes.subscribe(lambda change: self._enqueue(change.key) if change.new.spec.csi else None)
        self._attachments.subscribe(self._attachment_changed)
        self._nodes.subscribe(self._node_changed)
        self._drivers.subscribe(self._driver_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.volumes.run(), name="attach and detach")
            group.create_task(self.nodes.run(), name="attached volumes")

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """List volumes and nodes that have not let go of them yet."""
        return sorted(self._since)

    # -- events -----------------------------------------------------------------------------------------------------
    def _enqueue(self, volume: str | None) -> None:
        if volume:
            self.volumes.enqueue(volume)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.old is not None and change.type == "MODIFIED":
            same = change.old.spec.node_name == change.new.spec.node_name
            if same and is_terminal(change.old) == is_terminal(change.new):
                return
        for name in claim_names(change.new):
            claim = self._claims.get(f"{change.new.metadata.namespace}/{name}")
            self._enqueue(claim.spec.volume_name if claim is not None else None)

    def _attachment_changed(self, change: Change[storage_v1.VolumeAttachment]) -> None:
        new, volume = change.new, _volume_of(change.new)
        if change.type == "DELETED":
            self._detaching.discard(change.key)
        elif change.old is not None:
            self._telling.result(change.old, new, self._volumes.get(volume))
        self._enqueue(volume)
        self.nodes.enqueue(new.spec.node_name)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        old, new = change.old, change.new
        if change.type == "MODIFIED" and old is not None:
            same = old.status.volumes_in_use == new.status.volumes_in_use and old.spec.taints == new.spec.taints
            if same and plan.is_ready(old) == plan.is_ready(new):
                return
        attached = self._attachments.by_index(_BY_NODE, change.key)
        for attachment in attached:
            self._enqueue(_volume_of(attachment))
        if attached or new.status.volumes_attached:
            self.nodes.enqueue(change.key)
        if change.type == "ADDED":
            # Pods may have been placed on it before it was seen here.
            for pod in self._pods.by_index(ON_NODE, change.key):
                self._pod_changed(Change("ADDED", None, pod))

    def _driver_changed(self, change: Change[storage_v1.CSIDriver]) -> None:
        for volume in self._volumes.list():
            if volume.spec.csi is not None and volume.spec.csi.driver == change.key:
                self._enqueue(name_of(volume))

    # -- one volume -------------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Attach a volume where it is wanted, detach it where it is not."""
        volume = self._volumes.get(key)
        alike = self._alike(volume) if volume is not None else []
        names = {name_of(v) for v in alike} or {key}
        attachments = {
            attachment.spec.node_name: attachment
            for name in names
            for attachment in self._attachments.by_index(_BY_VOLUME, name)
            if is_attachment_name(name_of(attachment))  # what others made is theirs to take away
        }
        pods = self._pods_by_node(alike)
        if volume is None or not self._attachable(volume):
            pods = {}
        if not pods and not attachments:
            self._telling.forget(key)
            return None
        unique = _unique(volume) if volume is not None else ""
        involved = {name: self._nodes.get(name) for name in (*pods, *attachments)}
        nodes = {name: node for name, node in involved.items() if node is not None}
        now = self._clock.monotonic()
        decision = plan.decide(
            unique,
            [node for node in pods if node in nodes and nodes[node].metadata.annotations.get(MANAGED) == "true"],
            attachments,
            nodes,
            shared=volume is None or plan.is_shared(volume),
            waited={node: now - self._since.get((key, node), now) for node in attachments},
        )
        for pair in [pair for pair in self._since if pair[0] == key and pair[1] not in decision.waiting]:
            del self._since[pair]
        for node in decision.waiting:
            self._since.setdefault((key, node), now)
        for node in decision.detach:
            await self._detach(unique, attachments[node], forced=unique in _in_use(nodes.get(node)))
        for node in decision.attach:
            assert volume is not None, "only a volume that is there is wanted"
            await self._attach(volume, node)
        if volume is not None:
            self._telling.taken(volume, decision.taken, pods)
        return decision.again

    def _alike(self, volume: core_v1.PersistentVolume) -> list[core_v1.PersistentVolume]:
        """Return all PersistentVolumes that mean the same storage."""
        return self._volumes.by_index(_BY_HANDLE, _unique(volume)) if volume.spec.csi is not None else []

    def _attachable(self, volume: core_v1.PersistentVolume) -> bool:
        if volume.spec.csi is None:
            return False
        driver = self._drivers.get(volume.spec.csi.driver)
        return driver is None or driver.spec.attach_required is not False

    def _pods_by_node(self, volumes: Iterable[core_v1.PersistentVolume]) -> dict[str, list[core_v1.Pod]]:
        found: dict[str, list[core_v1.Pod]] = {}
        for volume in volumes:
            reference = volume.spec.claim_ref
            if reference is None:
                continue
            key = f"{reference.namespace}/{reference.name}"
            claim = self._claims.get(key)
            if claim is None or claim.metadata.uid != reference.uid or claim.spec.volume_name != volume.metadata.name:
                continue
            for pod in self._pods.by_index(_BY_CLAIM, key):
                found.setdefault(pod.spec.node_name or "", []).append(pod)
        return found

    async def _attach(self, volume: core_v1.PersistentVolume, node: str) -> None:
        assert volume.spec.csi is not None, volume.metadata.name
        driver = volume.spec.csi.driver
        wanted = storage_v1.VolumeAttachment(
            metadata=meta_v1.ObjectMeta(name=attachment_name(driver, volume.spec.csi.volume_handle, node)),
            spec=storage_v1.VolumeAttachmentSpec(
                attacher=driver,
                node_name=node,
                source=storage_v1.VolumeAttachmentSource(persistent_volume_name=name_of(volume)),
            ),
        )
        try:
            await self._client.create(wanted)
        except StatusError as error:
            if not error.already_exists:
                raise

    async def _detach(self, unique: str, attachment: storage_v1.VolumeAttachment, *, forced: bool) -> None:
        name, node = name_of(attachment), attachment.spec.node_name
        self._detaching.add(name)
        try:
            await self.reconcile_node(node)
            if not forced and unique in _in_use(await self._node_now(node)):
                # It came into use between our copy and now; the node's change brings us back.
                self._detaching.discard(name)
                self.nodes.enqueue(node)
                return
            await self._client.delete(storage_v1.VolumeAttachment, name)
        except StatusError as error:
            self._detaching.discard(name)
            if not error.not_found:
                raise

    async def _node_now(self, name: str) -> core_v1.Node | None:
        try:
            return await self._client.get(core_v1.Node, name)
        except StatusError as error:
            if error.not_found:
                return None
            raise

    # -- what nodes are told ----------------------------------------------------------------------------------------
    async def reconcile_node(self, name: str) -> None:
        """Have a node's status list what is attached to it."""
        node = self._nodes.get(name)
        if node is None:
            return
        attached = set()
        for attachment in self._attachments.by_index(_BY_NODE, name):
            volume = self._volumes.get(_volume_of(attachment))
            leaving = attachment.metadata.deletion_timestamp is not None or name_of(attachment) in self._detaching
            if attachment.status.attached and not leaving and volume is not None and volume.spec.csi is not None:
                attached.add(_unique(volume))
        wanted = [core_v1.AttachedVolume(name=volume, device_path="") for volume in sorted(attached)]
        if sorted(volume.name for volume in node.status.volumes_attached) == [volume.name for volume in wanted]:
            return
        body = {"status": {"volumesAttached": [{"name": volume.name, "devicePath": ""} for volume in wanted] or None}}
        await self._client.patch(core_v1.Node, name, "", body, subresource="status")


def _claims_of(pod: core_v1.Pod) -> list[str]:
    """Return the keys of the claims that a pod keeps on its node."""
    if not pod.spec.node_name or is_terminal(pod):
        return []
    return [f"{pod.metadata.namespace}/{name}" for name in claim_names(pod)]


def _volume_of(attachment: storage_v1.VolumeAttachment) -> str:
    """Return the name of the PersistentVolume that an attachment is for."""
    source = attachment.spec.source
    return (source.persistent_volume_name or "") if source is not None else ""


def _unique(volume: core_v1.PersistentVolume) -> str:
    assert volume.spec.csi is not None, volume.metadata.name
    return unique_name(volume.spec.csi.driver, volume.spec.csi.volume_handle)


def _in_use(node: core_v1.Node | None) -> list[str]:
    return node.status.volumes_in_use if node is not None else []
