"""VolumeBinding: a pod goes where its volumes are, and claims that wait for a pod get theirs where it goes.

Filter: bound volumes must be reachable from the node; for each claim that waits, a volume that is must be free, or its class
must have a provisioner. Reserve keeps the chosen volumes from others; before the pod is bound the choice is written (the
volume names the claim, or the claim names the node) and the binding waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from control.event_loop import offload
from control.scheduler.change_waiters import ChangeWaiters
from control.scheduler.cluster import Cluster
from control.scheduler.framework import BindingFailed, PreFilterRejected, PreFilterState, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.plugins.pending_bindings import PendingBinding, check_reachable
from control.scheduler.plugins.volume_matching import VolumeAffinities, VolumeMatcher, is_large
from control.scheduler.plugins.volume_provisioning import CapacityTopologies, Provisioning
from control.scheduler.podinfo import PodInfo
from control.scheduler.steps import OutOfSteps, Steps
from control.scheduler.unfinished import Unfinished
from kube.api import core_v1, meta_v1, storage_v1
from kube.client import Client
from kube.informer import Change, Informer
from kube.object_names import key_of, name_of
from kube.selectors import LabelSelector, from_label_selector
from kube.volume_binding import (
    BOUND_BY_CONTROLLER,
    SELECTED_NODE,
    claim_names,
    claim_reference,
    class_of,
    is_bound,
    meant_for,
    waits_for_pod,
)

Selector = meta_v1.LabelSelector
NAME = "VolumeBinding"
BIND_SECONDS = 600.0
_UNREACHABLE = Rejection(NAME, ("node(s) didn't match PersistentVolume's node affinity",), unresolvable=True)
_NONE_FREE = Rejection(NAME, ("node(s) didn't find available persistent volumes to bind",), unresolvable=True)
_NO_ROOM = Rejection(NAME, ("node(s) did not have enough free storage",), unresolvable=True)
_LOST = Rejection(
    NAME, ("node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",), unresolvable=True
)
_TOO_MANY = "the pod's claims were compared with too many volumes"
_UNDECIDED = Rejection(NAME, (_TOO_MANY,), unresolvable=True)
_CLAIM, _VOLUME = "claim ", "volume "
MOST_STEPS = 500_000
"""Comparisons of claims with volumes in one attempt to schedule a pod, over all nodes."""


class _Reservation(msgspec.Struct, frozen=True):
    """A placed pod's node, and the volumes that are chosen for its claims, by key; "" where a provisioner makes one."""

    node: core_v1.Node
    chosen: dict[str, str]


class VolumeBinding:
    name = NAME
    weight = 0

    def __init__(
        self,
        client: Client,
        claims: Informer[core_v1.PersistentVolumeClaim],
        volumes: Informer[core_v1.PersistentVolume],
        classes: Informer[storage_v1.StorageClass],
        provisioning: Provisioning,
    ) -> None:
        self._provisioning = provisioning
        self._client, self._claims, self._volumes, self._classes = client, claims, volumes, classes
        self._reserved: dict[str, _Reservation] = {}
        """Reservations by the UIDs of the pods."""
        self._abandoned: set[str] = set()
        """UIDs of the pods that were deleted while they waited."""
        self._taken: dict[str, set[str]] = {}
        """Volumes that are chosen, and the UIDs of the pods."""
        self._waiters = ChangeWaiters()
        self.affinities = VolumeAffinities()
        claims.subscribe(lambda change: self._waiters.changed(_CLAIM + change.key))
        volumes.subscribe(self._volume_changed)

    def _volume_changed(self, change: Change[core_v1.PersistentVolume]) -> None:
        self.affinities.changed(change)
        self._waiters.changed(_VOLUME + change.key)
        if (claim := change.new.spec.claim_ref) is not None:
            self._waiters.changed(f"{_CLAIM}{claim.namespace}/{claim.name}")

    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Look up the pod's claims; raises PreFilterRejected if they allow no node at all."""
        names = list(dict.fromkeys(claim_names(pod.pod)))
        if not names:
            return None
        ephemeral = {f"{pod.pod.metadata.name}-{v.name}" for v in pod.pod.spec.volumes if v.ephemeral is not None}
        bound: list[core_v1.PersistentVolume | None] = []
        waiting: list[core_v1.PersistentVolumeClaim] = []
        for name in names:
            claim = self._claims.get(f"{pod.namespace}/{name}")
            if claim is None and name in ephemeral:
                why = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
                raise PreFilterRejected(NAME, why)
            if claim is None:
                raise PreFilterRejected(NAME, f'persistentvolumeclaim "{name}" not found')
            if claim.status.phase == "Lost":
                volume = claim.spec.volume_name or ""
                why = f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
                raise PreFilterRejected(NAME, why)
            if claim.metadata.deletion_timestamp is not None:
                raise PreFilterRejected(NAME, f'persistentvolumeclaim "{name}" is being deleted')
            if name in ephemeral and not any(
                r.controller and r.uid == pod.uid for r in claim.metadata.owner_references
            ):
                owner = f'PVC "{pod.namespace}/{name}" was not created for pod "{pod.key}" (pod is not owner)'
                raise PreFilterRejected(NAME, owner)
            if is_bound(claim):
                bound.append(self._volumes.get(claim.spec.volume_name or ""))
            elif waits_for_pod(self._classes.get(class_of(claim))) and not claim.spec.volume_name:
                waiting.append(claim)
            else:
                raise PreFilterRejected(NAME, "pod has unbound immediate PersistentVolumeClaims")
        try:
            return _Check(self, bound, waiting, self.matcher(pod, waiting) if waiting else None)
        except OutOfSteps as error:
            raise PreFilterRejected(NAME, _TOO_MANY) from error

    def matcher(self, pod: PodInfo, claims: Sequence[core_v1.PersistentVolumeClaim]) -> VolumeMatcher:
        """Sort the volumes for a pod's claims; raises OutOfSteps, and Unfinished where large selectors are not compiled yet."""

        def taken(name: str) -> bool:
            return bool(self._taken.get(name, set()) - {pod.uid})

        return VolumeMatcher(
            claims, self._volumes.list(), self.affinities, taken, Steps(MOST_STEPS), self._compiled(pod, claims)
        )

    def _compiled(self, pod: PodInfo, claims: Sequence[core_v1.PersistentVolumeClaim]) -> Mapping[str, LabelSelector]:
        """Return the large selectors of claims by key: the thread compiles them, for as long as the attempt lasts."""
        state = pod.cycle_state.get(NAME)
        known: dict[str, tuple[Selector, LabelSelector]] = state if isinstance(state, dict) else {}
        missing = [
            (key_of(claim), selector)
            for claim in claims
            if (selector := claim.spec.selector) is not None
            and is_large(selector)
            and (key_of(claim) not in known or known[key_of(claim)][0] is not selector)
        ]
        if missing:

            async def compile_them() -> None:
                found = await offload.complete(
                    pod.namespace, lambda: [from_label_selector(each) for _, each in missing]
                )
                made = {key: (source, each) for (key, source), each in zip(missing, found, strict=True)}
                pod.cycle_state[NAME] = known | made

            raise Unfinished(compile_them)
        return {key: selector for key, (_, selector) in known.items()}

    def choose(
        self, matcher: VolumeMatcher, claims: Sequence[core_v1.PersistentVolumeClaim], node: core_v1.Node
    ) -> dict[str, str] | None:
        """Return a volume for each claim on a node ("": to be provisioned); None if one cannot have any."""
        result = matcher.on(node)
        for claim in claims:
            storage_class = self._classes.get(class_of(claim))
            if not result[key_of(claim)] and not self._provisioning.possible(storage_class, node):
                return None
        return result

    def topologies(self, claim: core_v1.PersistentVolumeClaim) -> CapacityTopologies | None:
        """Return the topologies with capacity for a claim; None if the driver does not report capacity."""
        storage_class = self._classes.get(class_of(claim))
        return self._provisioning.topologies(claim, storage_class) if storage_class is not None else None

    # -- reserve and pre-bind ---------------------------------------------------------------------------------------
    def reserve(self, pod: PodInfo, node: core_v1.Node) -> None:
        """Keep the volumes for the pod's waiting claims from others."""
        waiting = [c for c in self._of(pod) if not is_bound(c)]
        if waiting:
            self.unreserve(pod)
            try:
                chosen = self.choose(self.matcher(pod, waiting), waiting, node) or {}
            except OutOfSteps as error:
                raise BindingFailed(_TOO_MANY) from error
            self._reserved[pod.uid] = _Reservation(node, chosen)
            for name in filter(None, chosen.values()):
                self._taken.setdefault(name, set()).add(pod.uid)

    def waits(self, pod: PodInfo) -> bool:
        """True if the pod's claims are still to be bound, which may take a provisioner minutes."""
        reserved = self._reserved.get(pod.uid)
        return reserved is not None and bool(reserved.chosen)

    def unreserve(self, pod: PodInfo) -> None:
        self._abandoned.discard(pod.uid)
        reserved = self._reserved.pop(pod.uid, None)
        for name in reserved.chosen.values() if reserved is not None else ():
            users = self._taken.get(name, set())
            users.discard(pod.uid)
            if not users:
                self._taken.pop(name, None)

    def post_bind(self, pod: PodInfo, node: str) -> None:
        """The claims hold their volumes themselves now."""
        self.unreserve(pod)

    def _of(self, pod: PodInfo) -> list[core_v1.PersistentVolumeClaim]:
        found = [self._claims.get(key) for key in pod.claims]
        return [claim for claim in found if claim is not None]

    def abandon(self, pod: PodInfo) -> None:
        """The pod was deleted: wait no longer for its claims."""
        if pod.uid in self._reserved:
            self._abandoned.add(pod.uid)
            self._waiters.wake(pod.uid)

    async def pre_bind(self, pod: PodInfo, node: str) -> None:
        """Write the choices down and wait until the claims are bound; raises BindingFailed."""
        reserved = self._reserved.get(pod.uid)
        if reserved is None:
            return
        written = await self._write(reserved.chosen, node)
        keys = [_CLAIM + claim for claim in written] + [_VOLUME + name for name in reserved.chosen.values() if name]
        try:
            with self._waiters.waiting(pod.uid, keys) as changed:
                async with asyncio.timeout(BIND_SECONDS):
                    await self._until_bound(pod, written, reserved.node, changed)
        except TimeoutError as error:
            raise BindingFailed("timed out waiting for the condition") from error

    async def _until_bound(
        self, pod: PodInfo, written: Mapping[str, PendingBinding], node: core_v1.Node, changed: asyncio.Event
    ) -> None:
        while True:
            changed.clear()
            if pod.uid in self._abandoned:
                raise BindingFailed("the pod was deleted in the meantime")
            if self._all_bound(written, node):
                return
            await changed.wait()

    def _all_bound(self, written: Mapping[str, PendingBinding], node: core_v1.Node) -> bool:
        """Return whether all claims are bound; raises BindingFailed if one cannot be for this node any more.

        The watch of claims may be ahead of that of volumes: a claim whose volume is not cached yet is not bound, as upstream.
        """
        bound = True
        for key, binding in written.items():
            claim = self._claims.get(key)
            volume = self._volumes.get(name_of(binding.volume)) if binding.volume is not None else None
            bound &= binding.is_bound(claim, volume, name_of(node))
            its = self._volumes.get(claim.spec.volume_name or "") if claim is not None else None
            bound &= its is not None
            check_reachable(its, node, lambda each, place: self.affinities.of(each).includes(place))
        return bound

    async def _write(self, chosen: Mapping[str, str], node: str) -> dict[str, PendingBinding]:
        """Write that a volume is a claim's, or a claim's node, of each claim."""
        written = {}
        for key, name in chosen.items():
            claim, volume = self._claims.get(key), self._volumes.get(name) if name else None
            if claim is None:
                raise BindingFailed(f"claim {key} is gone")
            if name and volume is None:
                raise BindingFailed(f'persistentvolume "{name}" is gone')
            if volume is not None:
                volume = await self._name_claim(volume, claim)
            elif claim.metadata.annotations.get(SELECTED_NODE) != node:
                annotations = {**claim.metadata.annotations, SELECTED_NODE: node}
                metadata = msgspec.structs.replace(claim.metadata, annotations=annotations)
                claim = await self._client.update(msgspec.structs.replace(claim, metadata=metadata))
            written[key] = PendingBinding(claim, volume)
        return written

    async def _name_claim(
        self, volume: core_v1.PersistentVolume, claim: core_v1.PersistentVolumeClaim
    ) -> core_v1.PersistentVolume:
        if meant_for(volume, claim) and volume.spec.claim_ref is not None and volume.spec.claim_ref.uid:
            return volume
        annotations = {**volume.metadata.annotations, BOUND_BY_CONTROLLER: "yes"}
        return await self._client.update(
            msgspec.structs.replace(
                volume,
                metadata=msgspec.structs.replace(volume.metadata, annotations=annotations),
                spec=msgspec.structs.replace(volume.spec, claim_ref=claim_reference(claim)),
            )
        )


class _Check:
    def __init__(
        self,
        plugin: VolumeBinding,
        bound: list[core_v1.PersistentVolume | None],
        waiting: list[core_v1.PersistentVolumeClaim],
        matcher: VolumeMatcher | None,
    ) -> None:
        self._plugin, self._waiting, self._matcher = plugin, waiting, matcher
        self._lost = None in bound
        # Volumes that can be reached from the same nodes are asked once.
        self._bound = {msgspec.json.encode(v.spec.node_affinity): v for v in bound if v is not None}
        self._steps = Steps(MOST_STEPS)
        self._topologies: dict[str, CapacityTopologies | None] = {}

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check the volumes that are bound, and find some for the claims that wait."""
        try:
            return self._filter(node)
        except OutOfSteps:
            return _UNDECIDED

    def _filter(self, node: NodeInfo) -> Rejection | None:
        if self._lost:
            return _LOST
        for volume in self._bound.values():
            self._steps.take()
            if not self._plugin.affinities.of(volume).includes(node.node):
                return _UNREACHABLE
        if self._matcher is None:
            return None
        chosen = self._plugin.choose(self._matcher, self._waiting, node.node)
        if chosen is None:
            return _NONE_FREE
        for claim in self._waiting:
            key = key_of(claim)
            if chosen[key]:
                continue
            if key not in self._topologies:
                self._topologies[key] = self._plugin.topologies(claim)
            topologies = self._topologies[key]
            if topologies is not None and not topologies.includes(node.node):
                return _NO_ROOM
        return None

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        return None
