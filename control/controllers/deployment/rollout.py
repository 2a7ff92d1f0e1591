"""One reconciliation of a Deployment: a working copy of it, its ReplicaSets, and the writes.

The working copy collects annotations and conditions, and is written once at the end, if anything differs. Sizes come
from rolling.py, the status from status.py; this module only reads, writes and emits events.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from control.controllers.ownership import controller_reference, controller_uid
from control.controllers.pod_control import namespace_terminating
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Client
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.object_names import name_of, namespace_of

from . import revisions, rolling, status
from .revisions import REVISION, wanted
from .template import HASH_LABEL, same_template, template_hash


class Rollout:
    """The Deployment being reconciled, with its ReplicaSets as they are after each write."""

    def __init__(
        self,
        client: Client,
        recorder: EventRecorder,
        deployment: apps_v1.Deployment,
        sets: Sequence[apps_v1.ReplicaSet],
        new: apps_v1.ReplicaSet | None,
        now: datetime,
    ) -> None:
        self._client, self._recorder, self._now = client, recorder, now
        self._seen = deployment
        self.deployment = deployment
        self.new = new
        self.old = [rs for rs in sets if rs is not self.new]

    @property
    def sets(self) -> list[apps_v1.ReplicaSet]:
        return [*self.old, self.new] if self.new else list(self.old)

    # -- the working copy -------------------------------------------------------------------------------------------
    def set_conditions(self, conditions: list[apps_v1.DeploymentCondition]) -> None:
        changed = msgspec.structs.replace(self.deployment.status, conditions=conditions)
        self.deployment = msgspec.structs.replace(self.deployment, status=changed)

    def _note(self, reason: str, message: str, state: str = "True") -> None:
        """Put a Progressing condition into the working copy, where there is a deadline to be measured."""
        if status.has_deadline(self.deployment):
            new = status.condition("Progressing", state, reason, message, self._now)
            self.set_conditions(status.with_condition(self.deployment.status.conditions, new))

    def _set_revision(self, number: str) -> None:
        if self.deployment.metadata.annotations.get(REVISION) != number:
            annotations = {**self.deployment.metadata.annotations, REVISION: number}
            metadata = msgspec.structs.replace(self.deployment.metadata, annotations=annotations)
            self.deployment = msgspec.structs.replace(self.deployment, metadata=metadata)

    async def write(self, new_status: apps_v1.DeploymentStatus) -> None:
        """Write status and revision, where they differ from what is known."""
        self.deployment = msgspec.structs.replace(self.deployment, status=new_status)
        same_metadata = self.deployment.metadata.annotations == self._seen.metadata.annotations
        if new_status != self._seen.status or not same_metadata:
            self._seen = self.deployment = await self._client.update_status(self.deployment)

    # -- the new ReplicaSet -----------------------------------------------------------------------------------------
    async def sync_revision(self, *, create: bool) -> None:
        """Bring the new set's annotations up to date; make the set where there is none and `create` is true."""
        number = revisions.next_revision(self.old)
        if self.new is None:
            if create:
                await self._create_new(number)
            return
        annotations = revisions.new_set_annotations(self.deployment, self.new.metadata.annotations, number, exists=True)
        min_ready = self.deployment.spec.min_ready_seconds
        if annotations != self.new.metadata.annotations or (self.new.spec.min_ready_seconds or 0) != (min_ready or 0):
            metadata = msgspec.structs.replace(self.new.metadata, annotations=annotations)
            spec = msgspec.structs.replace(self.new.spec, min_ready_seconds=min_ready)
            self.new = await self._client.update(msgspec.structs.replace(self.new, metadata=metadata, spec=spec))
        self._set_revision(self.new.metadata.annotations[REVISION])
        if status.find(self.deployment.status.conditions, "Progressing") is None:
            self._note("FoundNewReplicaSet", f'Found new replica set "{name_of(self.new)}"')

    async def _create_new(self, number: int) -> None:
        desired = await self._new_set(number)
        try:
            self.new = await self._client.create(desired)
        except StatusError as error:
            if error.already_exists:
                self.new = await self._ours(desired)
                self._set_revision(str(number))
                return
            if not namespace_terminating(error):
                message = f'Failed to create new replica set "{name_of(desired)}": {error}'
                self._note("ReplicaSetCreateError", message, "False")
                self._recorder.event(self.deployment, "Warning", "ReplicaSetCreateError", message)
                await self.write(self.deployment.status)
            raise
        if size := wanted(self.new):
            self._tell_scaled("up", self.new, 0, size)
        self._set_revision(str(number))
        self._note("NewReplicaSetCreated", f'Created new replica set "{name_of(self.new)}"')

    async def _new_set(self, number: int) -> apps_v1.ReplicaSet:
        deployment = self.deployment
        digest = await template_hash(deployment.spec.template, deployment.status.collision_count)
        template = deployment.spec.template
        labels = {**template.metadata.labels, HASH_LABEL: digest}
        template = msgspec.structs.replace(template, metadata=msgspec.structs.replace(template.metadata, labels=labels))
        selector = deployment.spec.selector or meta_v1.LabelSelector()
        selector = msgspec.structs.replace(selector, match_labels={**selector.match_labels, HASH_LABEL: digest})
        return apps_v1.ReplicaSet(
            metadata=meta_v1.ObjectMeta(
                name=f"{name_of(deployment)}-{digest}",
                namespace=namespace_of(deployment),
                labels=labels,
                annotations=revisions.new_set_annotations(deployment, {}, number, exists=False),
                owner_references=[controller_reference(deployment)],
            ),
            spec=apps_v1.ReplicaSetSpec(
                replicas=rolling.new_size(deployment, self.old, 0),
                min_ready_seconds=deployment.spec.min_ready_seconds,
                selector=selector,
                template=template,
            ),
        )

    async def _ours(self, desired: apps_v1.ReplicaSet) -> apps_v1.ReplicaSet:
        """Take the set that has the name already, where it is ours; else count a collision and try another hash."""
        found = await self._client.get(apps_v1.ReplicaSet, name_of(desired), namespace_of(desired))
        template = found.spec.template or core_v1.PodTemplateSpec()
        if controller_uid(found) == self.deployment.metadata.uid and same_template(
            template, self.deployment.spec.template
        ):
            return found
        collisions = (self.deployment.status.collision_count or 0) + 1
        await self.write(msgspec.structs.replace(self.deployment.status, collision_count=collisions))
        raise StatusError(409, "Conflict", f"hash collision of replica set {name_of(desired)}")

    # -- sizes ------------------------------------------------------------------------------------------------------
    async def resize(self, changes: Sequence[rolling.Resize]) -> bool:
        """Apply new sizes in order; True if one differed from what it was."""
        scaled = False
        for change in changes:
            scaled |= await self._resize(change)
        return scaled

    async def _resize(self, change: rolling.Resize) -> bool:
        rs, size = change.rs, change.replicas
        annotations = {**rs.metadata.annotations, **revisions.size_annotations(self.deployment)}
        if size == wanted(rs) and annotations == rs.metadata.annotations:
            return False
        updated = await self._client.update(
            msgspec.structs.replace(
                rs,
                metadata=msgspec.structs.replace(rs.metadata, annotations=annotations),
                spec=msgspec.structs.replace(rs.spec, replicas=size),
            )
        )
        if self.new is rs:
            self.new = updated
        self.old = [updated if known is rs else known for known in self.old]
        if size != wanted(rs):
            self._tell_scaled("up" if size > wanted(rs) else "down", rs, wanted(rs), size)
        return size != wanted(rs)

    def _tell_scaled(self, direction: str, rs: apps_v1.ReplicaSet, old: int, new: int) -> None:
        message = f"Scaled {direction} replica set {name_of(rs)} from {old} to {new}"
        self._recorder.event(self.deployment, "Normal", "ScalingReplicaSet", message)

    async def clean_up(self) -> None:
        """Delete old sets beyond the history limit."""
        for rs in revisions.removable(self.deployment, self.old):
            await delete_if_present(
                self._client, apps_v1.ReplicaSet, name_of(rs), namespace_of(rs), uid=rs.metadata.uid or ""
            )
