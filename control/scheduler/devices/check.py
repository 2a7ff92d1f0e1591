"""PreFilter state of a pod's claims, and the check of each node for available devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from control.event_loop import inline
from control.scheduler.devices import extended
from control.scheduler.devices.allocated_devices import AllocatedDevices
from control.scheduler.devices.allocation import DeviceSearch, SearchSteps
from control.scheduler.devices.attempt import Attempt, NodeAllocation
from control.scheduler.devices.binding import Reserved
from control.scheduler.devices.budget import SECONDS, SearchTimeout
from control.scheduler.devices.inventory import Inventory
from control.scheduler.devices.requests import MOST_ALTERNATIVES, ClaimToAllocate, claim_to_allocate
from control.scheduler.devices.results import allocation
from control.scheduler.framework import PluginError, Rejection, normalize
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.unfinished import Unfinished
from kube.api import core_v1, resource_v1
from kube.node_affinity import term_matches

NAME = "DynamicResources"
_ELSEWHERE = Rejection(NAME, ("resourceclaim not available on the node",), unresolvable=True)
_NONE_LEFT = Rejection(NAME, ("cannot allocate all claims",), unresolvable=True)
_TOO_LONG = Rejection(NAME, ("timed out trying to allocate devices",), unresolvable=True, temporary=True)
_EACH_NODE, _EACH_CLAIM = 100, 4
"""Units of cost to begin a search on a node."""
_CHECKED_AT_ONCE = 128
"""Devices of a pod for which one step checks that they are still available."""
_STALE = Rejection(NAME, ("cannot schedule extended resource claim",), unresolvable=True)


class ClusterDevices(msgspec.Struct, frozen=True):
    """Devices, device classes and allocations of the cluster."""

    allocated: AllocatedDevices = msgspec.field(default_factory=AllocatedDevices)
    inventory: Inventory = msgspec.field(default_factory=Inventory)
    extended: extended.ExtendedResources = msgspec.field(default_factory=extended.ExtendedResources)
    classes: dict[str, resource_v1.DeviceClass] = msgspec.field(default_factory=dict)
    seconds: float = SECONDS
    """Timeout of the search in one attempt to schedule a pod."""


class Check:
    """PreFilter state of one pod."""

    def __init__(
        self,
        cluster: ClusterDevices,
        pod: PodInfo,
        to_allocate: list[ClaimToAllocate],
        placed: list[resource_v1.ResourceClaim],
        *,
        by_devices: bool,
        stale: bool,
    ) -> None:
        self._cluster, self._pod, self._placed = cluster, pod, placed
        self._by_devices, self._stale = by_devices, stale
        self._attempt = _attempt(pod, to_allocate, cluster.seconds)
        self._to_allocate = self._attempt.to_allocate
        self._has_alternatives = any(len(alternatives) > 1 for one in to_allocate for alternatives in one.requests)

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check the nodes of allocated claims, and find devices for the others."""
        if self._stale:
            return _STALE
        if not all(available(claim, node.node) for claim in self._placed):
            return _ELSEWHERE
        found = self._attempt.known(node.name) or self._find(node.node)
        if isinstance(found.error, SearchTimeout):
            return _TOO_LONG
        if found.error is not None:
            raise PluginError(f'running "{NAME}" filter plugin: {found.error}') from found.error
        return _NONE_LEFT if found.devices is None else None

    def decide(self, node: core_v1.Node) -> list[Reserved] | None:
        """Return the allocations of the pod's claims on a node; None if it has too few devices.

        Raises DeviceError and SearchTimeout. Raises Unfinished if the search exceeds the cost limit of the event loop, or if an
        earlier result is no longer available: then the scheduling cycle is repeated.
        """
        found = self._current(node)
        if found.error is not None:
            raise found.error
        if found.devices is None:
            return None
        done = [Reserved(claim) for claim in self._placed]
        for one, devices in zip(found.claims, found.devices, strict=True):
            made = found.extended_requests if one.claim.metadata.annotations.get(extended.ANNOTATION) else None
            result = allocation(one, devices, node)
            done.append(Reserved(one.claim, result, made.mappings if made is not None else None))
        return done

    def _current(self, node: core_v1.Node) -> NodeAllocation:
        """Return the node's result, computed again if it is outdated."""
        name, cluster, attempt = node.metadata.name or "", self._cluster, self._attempt
        known = attempt.known(name)
        if known is None:
            return self._find(node)
        devices, view = known.devices, known.view
        if known.node is node and devices is not None:
            if view is None or attempt.here(lambda: cluster.inventory.view(node) is view and self._holds(known)):
                return known
        attempt.forget(name)
        found = self._find(node)
        if found.devices is None and found.error is None:
            raise Unfinished(_nothing)
        return found

    def _holds(self, found: NodeAllocation) -> bool:
        """Return whether devices that were found are still available; False if they are too many to check in one step."""
        if found.since == self._cluster.allocated.changes:
            return True
        devices = found.devices or []
        if found.view is None or sum(map(len, devices)) > _CHECKED_AT_ONCE:
            return False
        return DeviceSearch(found.claims, found.view, self._cluster.allocated, self._attempt.budget).still(devices)

    def _find(self, node: core_v1.Node) -> NodeAllocation:
        return self._attempt.find(node, self._search(node))

    def _search(self, node: core_v1.Node) -> SearchSteps[NodeAllocation]:
        cluster, attempt = self._cluster, self._attempt
        while True:
            try:
                inline.spent(min(_EACH_NODE + _EACH_CLAIM * len(self._to_allocate), inline.MOST))
                claims, requests = self._claims_to_allocate(node)
                view = cluster.inventory.view(node) if claims else None
                break
            except inline.TooMuchHere:
                attempt.budget.check()
                yield None
        if view is None:
            return NodeAllocation(node, devices=[])
        since = cluster.allocated.changes
        found = yield from DeviceSearch(claims, view, cluster.allocated, attempt.budget).steps()
        return NodeAllocation(node, view, claims, requests, found, since=since)

    def _claims_to_allocate(
        self, node: core_v1.Node
    ) -> tuple[list[ClaimToAllocate], extended.ExtendedResourceRequests | None]:
        """Return the claims to allocate on a node, and the requests of the claim for extended resources among them."""
        requests = self._extended_requests(node)
        if requests is None or not requests.requests:
            return self._to_allocate, requests
        claim = extended.claim_for(self._pod.pod, requests.requests)
        claim.metadata.uid = f"extended-resources-of-{self._pod.uid}"
        return [*self._to_allocate, claim_to_allocate(claim, self._cluster.classes)], requests

    def _extended_requests(self, node: core_v1.Node) -> extended.ExtendedResourceRequests | None:
        if not self._by_devices:
            return None
        backed = {}
        for resource in self._pod.others:
            device_class = self._cluster.extended.class_of(resource)
            if device_class is not None and not has_resource(node.status.allocatable, resource):
                backed[resource] = device_class
        return extended.device_requests(self._pod.pod, backed)

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Prefer nodes with devices for the first alternative of each request."""
        if not self._has_alternatives:
            return None
        return normalize([self._rank(node.name) for node in nodes], "up")

    def _rank(self, node: str) -> int:
        found = self._attempt.known(node)
        ranks = [
            {result.alternative.request: result.alternative.rank for result in devices}
            for devices in (found and found.devices) or ()
        ]
        return sum(MOST_ALTERNATIVES - rank for one in ranks for rank in one.values())


async def _nothing() -> None:
    """Continue at once: nothing is left to compute."""


def _attempt(pod: PodInfo, to_allocate: list[ClaimToAllocate], seconds: float) -> Attempt:
    """Return the pod's attempt in progress, or start one."""
    known = pod.cycle_state.get(NAME)
    if isinstance(known, Attempt):
        known.concerns(to_allocate)
        return known
    begun = Attempt(pod.namespace, to_allocate, seconds)
    pod.cycle_state[NAME] = begun
    return begun


def has_resource(allocatable: Mapping[str, Any], resource: str) -> bool:
    """True if the node's allocatable resources contain the extended resource (of a device plugin)."""
    return str(allocatable.get(resource, "0")) not in ("", "0")


def available(claim: resource_v1.ResourceClaim, node: core_v1.Node) -> bool:
    found = claim.status.allocation.node_selector if claim.status.allocation is not None else None
    return found is None or any(term_matches(term, node) for term in found.node_selector_terms)
