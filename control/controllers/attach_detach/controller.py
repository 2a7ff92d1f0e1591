"""The attach/detach controller: a VolumeAttachment for each CSI volume on each node that needs it.

It creates VolumeAttachments: the driver's own controller attaches the volume and reports it there. The controller reports
attached volumes to the node in its status, which waits for that before it uses the volume. For detaching the order is
what keeps data whole: out of the node's status.volumesAttached first, which is refused where its volumesInUse has it
by then, then the VolumeAttachment goes. A node that comes to use the volume meanwhile sees that it is not attached.
All state is in the API but for how long was waited. Informers may lag: before what cannot be undone the API server
itself is asked (node_statuses.py, attachments.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from control.controllers.attach_detach import plan
from control.controllers.attach_detach.attachment_events import AttachmentEvents
from control.controllers.attach_detach.attachments import AttachmentCreator
from control.controllers.attach_detach.node_statuses import BY_NODE, NodeStatuses
from control.controllers.attach_detach.requirements import AttachRequirements
from control.controllers.attach_detach.timeouts import AttachTimeouts
from control.controllers.context import Context
from control.controllers.nodes.lifecycle import ON_NODE, by_node
from kube import cancellation
from kube.api import core_v1, storage_v1
from kube.controller import Controller
from kube.csi import attached_volume, is_attachment_name, unique_name
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import name_of
from kube.volume_binding import claim_names

MANAGED = "volumes.kubernetes.io/controller-managed-attach-detach"
_BY_CLAIM, _BY_VOLUME, _BY_HANDLE = "volume-claim", "attached-volume", "csi-handle"
RETRY_SECONDS = 5.0
"""After which a volume is checked again that the API server shows in use or attached elsewhere, and our copy does not."""


class AttachDetachController:
    """Follows pods, claims, volumes, attachments, nodes and drivers; works by PersistentVolume."""

    def __init__(self, context: Context) -> None:
        self._client, self._clock = context.client, context.clock
        self._attachment_events = AttachmentEvents(
            context.recorder("attachdetach-controller"), lambda v: self._pods_by_node([v])
        )
        of = context.informers.of
        self._pods, self._nodes = of(core_v1.Pod), of(core_v1.Node)
        self._claims, self._volumes = of(core_v1.PersistentVolumeClaim), of(core_v1.PersistentVolume)
        self._attachments = of(storage_v1.VolumeAttachment)
        self._pods.add_index(_BY_CLAIM, _claims_of)
        self._pods.add_index(ON_NODE, by_node)
        self._volumes.add_index(_BY_HANDLE, lambda volume: [_unique(volume)] if volume.spec.csi else [])
        self._attachments.add_index(_BY_VOLUME, lambda a: [_volume_of(a)])
        self._since: dict[tuple[str, str], float] = {}
        """Volume and node: when it was first found that a node should detach."""
        self._requirements, self._timeouts = AttachRequirements(self._clock), AttachTimeouts(self._clock)
        self._statuses, self._attachment_creator = NodeStatuses(context), AttachmentCreator(context.client)
        self.volumes = Controller("attach and detach", self.reconcile, workers=4, clock=self._clock)
        self.nodes = Controller("attached volumes", self._statuses.reconcile, workers=2, clock=self._clock)
        self._pods.subscribe(self._pod_changed)
        self._claims.subscribe(lambda change: self._enqueue(change.new.spec.volume_name))
        self._volumes.subscribe(lambda change: self._enqueue(change.key) if change.new.spec.csi else None)
        self._attachments.subscribe(self._attachment_changed)
        self._nodes.subscribe(self._node_changed)
        of(storage_v1.CSIDriver).subscribe(self._driver_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self.volumes.run, "attach and detach")
            cancellation.start(group, self.nodes.run, "attached volumes")

    @property
    def waiting(self) -> list[tuple[str, str]]:
        """List volumes and nodes that have not released them yet."""
        return sorted(self._since)

    # -- events -----------------------------------------------------------------------------------------------------
    def _enqueue(self, volume: str | None) -> None:
        if volume:
            self.volumes.enqueue(volume)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.old is not None and change.type == "MODIFIED":
            same = change.old.spec.node_name == change.new.spec.node_name
            if same and plan.has_left(change.old) == plan.has_left(change.new):
                return
        for name in claim_names(change.new):
            claim = self._claims.get(f"{change.new.metadata.namespace}/{name}")
            self._enqueue(claim.spec.volume_name if claim is not None else None)

    def _attachment_changed(self, change: Change[storage_v1.VolumeAttachment]) -> None:
        new, volume = change.new, _volume_of(change.new)
        if change.type == "DELETED":
            self._statuses.stays(change.key)
        elif change.old is not None:
            self._attachment_events.report_result(change.old, new, self._volumes.get(volume))
        self._enqueue(volume)
        self.nodes.enqueue(new.spec.node_name)

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        old, new = change.old, change.new
        if change.type == "MODIFIED" and old is not None:
            if old.status.volumes_attached != new.status.volumes_attached:
                self.nodes.enqueue(change.key)  # somebody else may have written it
            if _what_counts(old) == _what_counts(new):
                return
        attached = self._attachments.by_index(BY_NODE, change.key)
        for attachment in attached:
            self._enqueue(_volume_of(attachment))
        if attached or new.status.volumes_attached:
            self.nodes.enqueue(change.key)
        if change.type == "ADDED" or (old is not None and _is_managed(old) != _is_managed(new)):
            # Pods may have been placed on it before it was seen here, or before its agent said who attaches.
            for pod in self._pods.by_index(ON_NODE, change.key):
                self._pod_changed(Change("ADDED", None, pod))

    def _driver_changed(self, change: Change[storage_v1.CSIDriver]) -> None:
        self._requirements.change(change)
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
            if is_attachment_name(name_of(attachment))  # what others made is theirs to remove
        }
        pods, until_detach = self._pods_by_node(alike), None
        if volume is None or volume.spec.csi is None:
            pods = {}
        elif (left := self._requirements.seconds_left(volume.spec.csi.driver)) is not None:
            pods = {node: found for node, found in pods.items() if node in attachments and left > 0}
            until_detach = left if pods else None
        pending = [node for node in pods if node in attachments and plan.is_pending(attachments[node])]
        late, until_timeout = self._timeouts.check(key, pending)
        if not pods and not attachments:
            self._attachment_events.forget(key)
            return None
        involved = {name: self._nodes.get(name) for name in (*pods, *attachments)}
        nodes = {name: node for name, node in involved.items() if node is not None}
        unique = _unique(volume) if volume is not None else _in_use_of(attachments.values(), nodes)
        now = self._clock.monotonic()
        decision = plan.decide(
            unique,
            [node for node in pods if node not in nodes or _is_managed(nodes[node])],
            attachments,
            nodes,
            shared=volume is None or plan.is_shared(volume),
            waited={node: now - self._since.get((key, node), now) for node in attachments},
        )
        for pair in [pair for pair in self._since if pair[0] == key and pair[1] not in decision.waiting]:
            del self._since[pair]
        for node in decision.waiting:
            self._since.setdefault((key, node), now)
        done = True
        for node in decision.detach:
            done &= await self._detach(attachments[node], forced=unique in _in_use(nodes.get(node)))
        for node in decision.attach:
            assert volume is not None, "only a volume that is there is wanted"
            done &= await self._attachment_creator.attach(volume, node, shared=plan.is_shared(volume))
        if volume is not None:
            self._attachment_events.report_multi_attach(volume, decision.taken, pods)
            for node in late:
                self._attachment_events.report_timeout(volume, attachments[node])
        # What the API server knows and our copy does not may be over before a broken watch is back: no change would be seen.
        delays = (decision.again, until_detach, until_timeout, None if done else RETRY_SECONDS)
        return min((delay for delay in delays if delay is not None), default=None)

    def _alike(self, volume: core_v1.PersistentVolume) -> list[core_v1.PersistentVolume]:
        """Return all PersistentVolumes that mean the same storage."""
        return self._volumes.by_index(_BY_HANDLE, _unique(volume)) if volume.spec.csi is not None else []

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

    async def _detach(self, attachment: storage_v1.VolumeAttachment, *, forced: bool) -> bool:
        """Detach a volume; return False if the node uses it, which our copy does not show yet."""
        name = name_of(attachment)
        if not await self._statuses.leave(attachment, forced=forced):
            return False
        try:
            await self._client.delete(storage_v1.VolumeAttachment, name, uid=attachment.metadata.uid or "")
        except StatusError as error:
            self._statuses.stays(name)
            if not error.not_found:
                raise
        return True


def _claims_of(pod: core_v1.Pod) -> list[str]:
    """Return the keys of the claims that a pod keeps on its node."""
    if not pod.spec.node_name or plan.has_left(pod):
        return []
    return [f"{pod.metadata.namespace}/{name}" for name in claim_names(pod)]


def _volume_of(attachment: storage_v1.VolumeAttachment) -> str:
    """Return the name of the PersistentVolume that an attachment is for."""
    source = attachment.spec.source
    return (source.persistent_volume_name or "") if source is not None else ""


def _unique(volume: core_v1.PersistentVolume) -> str:
    assert volume.spec.csi is not None, volume.metadata.name
    return unique_name(volume.spec.csi.driver, volume.spec.csi.volume_handle)


def _in_use_of(attachments: Iterable[storage_v1.VolumeAttachment], nodes: Mapping[str, core_v1.Node]) -> str:
    """Return what nodes that use it call a volume whose PersistentVolume is gone; "" where none uses it."""
    for attachment in attachments:
        name = attachment.spec.node_name
        if found := attached_volume(name_of(attachment), name, _in_use(nodes.get(name))):
            return found
    return ""


def _is_managed(node: core_v1.Node) -> bool:
    return node.metadata.annotations.get(MANAGED) == "true"


def _what_counts(node: core_v1.Node) -> tuple[object, ...]:
    """Return all of a node that decides about its volumes."""
    return node.status.volumes_in_use, node.spec.taints, plan.is_ready(node), _is_managed(node)


def _in_use(node: core_v1.Node | None) -> list[str]:
    return node.status.volumes_in_use if node is not None else []
