"""State of PreFilter for a pod's claims, and the available devices of each node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from control import inline
from control.scheduler.devices import extended
from control.scheduler.devices.allocation import Search, Steps
from control.scheduler.devices.attempt import Attempt, Found
from control.scheduler.devices.binding import Reserved
from control.scheduler.devices.book import Book
from control.scheduler.devices.budget import SECONDS, SearchTimeout
from control.scheduler.devices.inventory import Inventory
from control.scheduler.devices.requests import MOST_ALTERNATIVES, Wanted, wanted
from control.scheduler.devices.results import allocation
from control.scheduler.framework import PluginError, Rejection, Unfinished, normalize
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, resource_v1
from kube.node_affinity import term_matches

NAME = "DynamicResources"
_ELSEWHERE = Rejection(NAME, ("resourceclaim not available on the node",), unresolvable=True)
_NONE_LEFT = Rejection(NAME, ("cannot allocate all claims",), unresolvable=True)
_TOO_LONG = Rejection(NAME, ("timed out trying to allocate devices",), unresolvable=True, passing=True)
_EACH_NODE, _EACH_CONSTRAINT = 100, 4
"""Units of cost to begin a search on a node."""
_STALE = Rejection(NAME, ("cannot schedule extended resource claim",), unresolvable=True)


@dataclass(frozen=True, slots=True)
class Stock:
    """Devices and their allocations."""

    book: Book = field(default_factory=Book)
    inventory: Inventory = field(default_factory=Inventory)
    extended: extended.ExtendedResources = field(default_factory=extended.ExtendedResources)
    classes: dict[str, resource_v1.DeviceClass] = field(default_factory=dict)
    seconds: float = SECONDS
    """Time that one attempt to schedule a pod may search."""


class Check:
    """State of the check of one pod."""

    def __init__(
        self,
        stock: Stock,
        pod: PodInfo,
        to_allocate: list[Wanted],
        placed: list[resource_v1.ResourceClaim],
        by_devices: bool,
        stale: bool,
    ) -> None:
        self._stock, self._pod, self._placed = stock, pod, placed
        self._by_devices, self._stale = by_devices, stale
        self._attempt = _attempt(pod, to_allocate, stock.seconds)
        self._to_allocate = self._attempt.to_allocate
        self._has_alternatives = any(len(needs) > 1 for one in to_allocate for needs in one.requests)

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
        """Return what the pod's claims get on a node; None where there is not enough. Raises DeviceError, SearchTimeout.

        Raises Unfinished where the search costs too much on the event loop, or where what an earlier one found is gone: then
        the pod is decided anew.
        """
        found = self._current(node)
        if found.error is not None:
            raise found.error
        if found.devices is None:
            return None
        done = [Reserved(claim) for claim in self._placed]
        for one, devices in zip(found.claims, found.devices, strict=True):
            made = found.wish if one.claim.metadata.annotations.get(extended.ANNOTATION) else None
            result = allocation(one, devices, node)
            done.append(Reserved(one.claim, result, made.mappings if made is not None else None))
        return done

    def _current(self, node: core_v1.Node) -> Found:
        """Return what a node has now."""
        name, stock, attempt = node.metadata.name or "", self._stock, self._attempt
        known = attempt.known(name)
        if known is None:
            return self._find(node)
        devices, view = known.devices, known.view
        if known.node is node and devices is not None:
            if view is None:
                return known
            search = Search(known.claims, view, stock.book, attempt.budget)
            if attempt.here(lambda: stock.inventory.view(node) is view and search.still(devices)):
                return known
        attempt.forget(name)
        found = self._find(node)
        if found.devices is None and found.error is None:
            raise Unfinished(_nothing)
        return found

    def _find(self, node: core_v1.Node) -> Found:
        return self._attempt.find(node, self._search(node))

    def _search(self, node: core_v1.Node) -> Steps[Found]:
        stock, attempt = self._stock, self._attempt
        constraints = sum(len(one.constraints) for one in self._to_allocate)
        while True:
            try:
                inline.spent(min(_EACH_NODE + _EACH_CONSTRAINT * constraints, inline.MOST))
                claims, wish = self._wanted(node)
                view = stock.inventory.view(node) if claims else None
                break
            except inline.TooMuchHere:
                attempt.budget.check()
                yield None
        if view is None:
            return Found(node, devices=[])
        found = yield from Search(claims, view, stock.book, attempt.budget).steps()
        return Found(node, view, claims, wish, found)

    def _wanted(self, node: core_v1.Node) -> tuple[list[Wanted], extended.Wish | None]:
        """Return the claims to allocate on a node, and what the one for extended resources among them is for."""
        wish = self._wish(node)
        if wish is None or not wish.requests:
            return self._to_allocate, wish
        claim = extended.claim_for(self._pod.pod, wish.requests)
        claim.metadata.uid = f"extended-resources-of-{self._pod.uid}"
        return [*self._to_allocate, wanted(claim, self._stock.classes)], wish

    def _wish(self, node: core_v1.Node) -> extended.Wish | None:
        if not self._by_devices:
            return None
        backed = {}
        for resource in self._pod.others:
            device_class = self._stock.extended.class_of(resource)
            if device_class is not None and not has_resource(node.status.allocatable, resource):
                backed[resource] = device_class
        return extended.wish(self._pod.pod, backed)

    def score(self, nodes: Sequence[NodeInfo]) -> list[int] | None:
        """Prefer nodes that have what requests name first of their alternatives."""
        if not self._has_alternatives:
            return None
        return normalize([self._rank(node.name) for node in nodes], "up")

    def _rank(self, node: str) -> int:
        found = self._attempt.known(node)
        ranks = [
            {taken.need.request: taken.need.rank for taken in devices} for devices in (found and found.devices) or ()
        ]
        return sum(MOST_ALTERNATIVES - rank for one in ranks for rank in one.values())


async def _nothing() -> None:
    """All is known."""


def _attempt(pod: PodInfo, to_allocate: list[Wanted], seconds: float) -> Attempt:
    """Return the attempt that is under way for a pod, or begin one."""
    known = pod.cycle_state.get(NAME)
    if isinstance(known, Attempt):
        known.concerns(to_allocate)
        return known
    begun = Attempt(pod.namespace, to_allocate, seconds)
    pod.cycle_state[NAME] = begun
    return begun


def has_resource(allocatable: Mapping[str, Any], resource: str) -> bool:
    """True where a node has an extended resource itself (of a device plugin)."""
    return str(allocatable.get(resource, "0")) not in ("", "0")


def available(claim: resource_v1.ResourceClaim, node: core_v1.Node) -> bool:
    found = claim.status.allocation.node_selector if claim.status.allocation is not None else None
    return found is None or any(term_matches(term, node) for term in found.node_selector_terms)
