"""DynamicResources: pods whose claims need devices go where the devices are.

PreEnqueue keeps a pod back until its claims exist. PreFilter looks them up; Filter searches devices for those that are not
allocated yet; Reserve keeps the chosen node's devices from others; PreBind writes allocation and reservation. Where no node
fits, PostFilter takes back an allocation that nobody uses and that holds the pod elsewhere.
Upstream: pkg/scheduler/framework/plugins/dynamicresources.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from control.scheduler.cluster import Cluster
from control.scheduler.configuration import ConfigurationError
from control.scheduler.devices import extended, prepared_claims
from control.scheduler.devices.binding import ClaimWriter, Reserved
from control.scheduler.devices.budget import SECONDS, SearchTimeout
from control.scheduler.devices.check import NAME, Check, ClusterDevices, available
from control.scheduler.devices.requests import DeviceError, MissingClass
from control.scheduler.framework import (
    BindingFailed,
    PluginError,
    PreFilterRejected,
    PreFilterState,
)
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube import duration
from kube.api import core_v1, resource_v1
from kube.client import Client
from kube.clock import Clock
from kube.errors import StatusError
from kube.informer import Informer
from kube.object_names import key_of
from kube.pod_claims import ClaimError, can_be_reserved, check_owner, claim_name, is_reserved_for, made_claims

log = logging.getLogger(__name__)
BIND_SECONDS = 600.0


class DynamicResources:
    name = NAME
    weight = 2

    def __init__(
        self,
        client: Client,
        claims: Informer[resource_v1.ResourceClaim],
        slices: Informer[resource_v1.ResourceSlice],
        classes: Informer[resource_v1.DeviceClass],
        clock: Clock,
        args: Mapping[str, Any] | None = None,
    ) -> None:
        given = args or {}
        self.cluster = ClusterDevices(seconds=_seconds(given, "filterTimeout", SECONDS) or math.inf)
        self.allocated, self.inventory = self.cluster.allocated, self.cluster.inventory
        self.extended, self.classes = self.cluster.extended, self.cluster.classes
        self._informers: tuple[Informer[Any], ...] = (claims, slices, classes)
        self._writer = ClaimWriter(client, self.allocated, clock, _seconds(given, "bindingTimeout", BIND_SECONDS))
        self._reserved: dict[str, list[Reserved]] = {}
        """Claims and allocations that are reserved for placed pods, by the pods' UIDs."""
        self._abandoned: set[str] = set()
        """UIDs of the pods that were deleted while they waited."""

    def follow(
        self,
        claim_changed: Callable[[Any], None],
        supply_changed: Callable[[], None],
        resources_changed: Callable[[], None],
    ) -> None:
        """Keep up with claims, slices and classes, and report each change after it is stored."""

        def claim(change: Any) -> None:
            self.allocated.changed(change)
            self._writer.waiters.changed(change.key)
            claim_changed(change)

        def slice_(change: Any) -> None:
            self.inventory.changed(change)
            supply_changed()

        def class_(change: Any) -> None:
            self.classes.pop(change.key, None)
            if change.type != "DELETED":
                self.classes[change.key] = change.new
            if self.extended.update(self.classes.values()):
                resources_changed()
            supply_changed()

        for informer, handler in zip(self._informers, (claim, slice_, class_), strict=True):
            informer.subscribe(handler)

    # -- claims of a pod --------------------------------------------------------------------------------------------
    def claims_of(self, pod: core_v1.Pod) -> list[resource_v1.ResourceClaim]:
        """Return the claims of a pod, each once; raises ClaimError if one is missing or not the pod's."""
        found: dict[str, resource_v1.ResourceClaim] = {}
        made = made_claims(pod)
        for entry in pod.spec.resource_claims:
            name, owned = claim_name(pod, entry, made)
            if name is None or (name in found and not owned):
                continue
            claim = self.allocated.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                raise ClaimError(f'resourceclaim "{name}" not found')
            if claim.metadata.deletion_timestamp is not None:
                raise ClaimError(f'resourceclaim "{name}" is being deleted')
            if owned:
                check_owner(pod, claim)
            found[name] = claim
        return list(found.values())

    def pre_enqueue(self, pod: core_v1.Pod) -> str:
        """Keep a pod back until its claims exist."""
        try:
            self.claims_of(pod)
        except ClaimError as error:
            return str(error)
        return ""

    # -- choosing ---------------------------------------------------------------------------------------------------
    def pre_filter(self, pod: PodInfo, cluster: Cluster) -> PreFilterState | None:
        """Look up the pod's claims; raises PreFilterRejected if they allow no node at all."""
        by_devices = self.extended.backs(pod.others)
        if not pod.pod.spec.resource_claims and not by_devices:
            return None
        return self._check(pod, by_devices=by_devices)

    def _check(self, pod: PodInfo, *, by_devices: bool) -> Check | None:
        try:
            claims = self.claims_of(pod.pod)
            unallocated, placed = [], []
            for claim in claims:
                if claim.status.allocation is None:
                    if self.allocated.pending(claim.metadata.uid or ""):
                        who = f"{claim.metadata.namespace}/{claim.metadata.name}"
                        raise ClaimError(f"resource claim {who} is in the process of being allocated")
                    unallocated.append(claim)
                    continue
                if not can_be_reserved(claim) and not is_reserved_for(claim, pod.pod):
                    raise ClaimError("resourceclaim in use")
                placed.append(claim)
            to_allocate = prepared_claims.prepared(pod, unallocated, self.classes)
        except (ClaimError, MissingClass) as error:
            raise PreFilterRejected(NAME, str(error)) from error
        except DeviceError as error:
            raise PluginError(f'running PreFilter plugin "{NAME}": {error}') from error
        stale = self._special(pod.pod) is not None if by_devices else False
        return (
            Check(self.cluster, pod, to_allocate, placed, by_devices=by_devices, stale=stale)
            if claims or by_devices
            else None
        )

    def _special(self, pod: core_v1.Pod) -> resource_v1.ResourceClaim | None:
        """Return the claim that an earlier try has made for the pod's extended resources."""
        return next((claim for claim in self.allocated.claims() if extended.is_claim_of(claim, pod)), None)

    # -- keeping and writing ----------------------------------------------------------------------------------------
    def reserve(self, pod: PodInfo, node: core_v1.Node) -> None:
        """Keep the devices that the pod is given on a node; raises BindingFailed if they are gone."""
        by_devices = self.extended.backs(pod.others)
        if not pod.pod.spec.resource_claims and not by_devices:
            return
        check = self._check(pod, by_devices=by_devices)
        if check is None:
            return
        try:
            found = check.decide(node)
        except (DeviceError, SearchTimeout) as error:
            raise BindingFailed(str(error)) from error
        if found is None:
            raise BindingFailed("claim allocation not found for node")
        for reserved in found:
            if reserved.allocation is not None:
                self.allocated.reserve(reserved.reserved_uid, reserved.allocation)
        self._reserved[pod.uid] = found

    def unreserve(self, pod: PodInfo) -> None:
        self._abandoned.discard(pod.uid)
        written = []
        for reserved in self._reserved.pop(pod.uid, ()):
            if not reserved.written:
                self.allocated.settle(reserved.reserved_uid)
            if reserved.written or reserved.created:
                written.append(reserved)  # `release` takes it back
        if written:
            self._reserved[pod.uid] = written

    def waits(self, pod: PodInfo) -> bool:
        return bool(self._reserved.get(pod.uid))

    async def pre_bind(self, pod: PodInfo, node: str) -> None:
        """Write the claims, and wait for devices that are prepared first; raises BindingFailed, StatusError."""
        found = self._reserved.get(pod.uid, [])
        for reserved in found:
            await self._writer.bind(pod.pod, reserved)
        claims = [reserved.claim for reserved in found]
        await self._writer.wait_ready(pod.uid, claims, lambda: pod.uid in self._abandoned)

    def abandon(self, pod: PodInfo) -> None:
        """The pod was deleted: wait no longer for its devices."""
        if pod.uid in self._reserved:
            self._abandoned.add(pod.uid)
            self._writer.waiters.wake(pod.uid)

    async def release(self, pod: PodInfo) -> None:
        """Take back what was written for a pod that is not bound after all."""
        for reserved in self._reserved.pop(pod.uid, ()):
            if reserved.written or reserved.created:
                try:
                    await self._writer.release(pod.pod, reserved)
                except StatusError as error:
                    log.warning("releasing %s: %s", key_of(reserved.claim), error)

    def post_bind(self, pod: PodInfo, node: str) -> None:
        self._reserved.pop(pod.uid, None)
        self._abandoned.discard(pod.uid)

    # -- when no node fits ------------------------------------------------------------------------------------------
    def post_filter(self, pod: PodInfo, nodes: Iterable[NodeInfo]) -> tuple[str, Callable[[], Awaitable[None]] | None]:
        """Return a message, and the action: an unused claim that is allocated on another node is deallocated."""
        stale = self._special(pod.pod) if self.extended.backs(pod.others) else None
        if stale is not None:
            return "deallocation of ResourceClaim completed", functools.partial(self._writer.delete, stale)
        try:
            claims = self.claims_of(pod.pod)
        except ClaimError:
            claims = []
        if not claims:
            return "no new claims to deallocate", None
        where = list(nodes)
        for claim in claims:
            unused = all(consumer.uid == pod.uid for consumer in claim.status.reserved_for)
            if unused and claim.status.allocation is not None and not all(available(claim, n.node) for n in where):
                return "deallocation of ResourceClaim completed", functools.partial(self._writer.deallocate, claim)
        return "still not schedulable", None


def _seconds(args: Mapping[str, Any], name: str, default: float) -> float:
    """Read a time of DynamicResourcesArgs; raises ConfigurationError."""
    if name not in args:
        return default
    try:
        return duration.parse(str(args[name]))
    except ValueError as error:
        raise ConfigurationError(f"pluginConfig[{NAME}]: {name}: {error}") from error
