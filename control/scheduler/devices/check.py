"""What PreFilter has looked up of a pod's claims, and what each node then has for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from control.scheduler.devices import extended
from control.scheduler.devices.allocation import Search, Taken
from control.scheduler.devices.binding import Reserved
from control.scheduler.devices.book import Book
from control.scheduler.devices.budget import SECONDS, Budget, SearchTimeout
from control.scheduler.devices.inventory import Inventory
from control.scheduler.devices.requests import MOST_ALTERNATIVES, DeviceError, Wanted, wanted
from control.scheduler.devices.results import allocation
from control.scheduler.framework import PluginError, Rejection, normalize
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from kube.api import core_v1, resource_v1
from kube.node_affinity import term_matches

NAME = "DynamicResources"
_ELSEWHERE = Rejection(NAME, ("resourceclaim not available on the node",), unresolvable=True)
_NONE_LEFT = Rejection(NAME, ("cannot allocate all claims",), unresolvable=True)
_TOO_LONG = Rejection(NAME, ("timed out trying to allocate devices",), unresolvable=True)
_STALE = Rejection(NAME, ("cannot schedule extended resource claim",), unresolvable=True)


@dataclass(frozen=True, slots=True)
class Stock:
    """What there is and who has it."""

    book: Book = field(default_factory=Book)
    inventory: Inventory = field(default_factory=Inventory)
    extended: extended.ExtendedResources = field(default_factory=extended.ExtendedResources)
    classes: dict[str, resource_v1.DeviceClass] = field(default_factory=dict)
    seconds: float = SECONDS
    """How long one attempt to schedule a pod may search."""


class Check:
    """What was looked up for one pod."""

    def __init__(
        self,
        stock: Stock,
        pod: PodInfo,
        to_allocate: list[Wanted],
        placed: list[resource_v1.ResourceClaim],
        by_devices: bool,
        stale: bool,
    ) -> None:
        self._stock, self._pod, self._to_allocate, self._placed = stock, pod, to_allocate, placed
        self._by_devices, self._stale = by_devices, stale
        self._budget = Budget(stock.seconds)
        self._ranks: dict[str, int] = {}
        self._has_alternatives = any(len(needs) > 1 for one in to_allocate for needs in one.requests)

    def filter(self, node: NodeInfo) -> Rejection | None:
        """Check the nodes of allocated claims, and find devices for the others."""
        if self._stale:
            return _STALE
        if not all(available(claim, node.node) for claim in self._placed):
            return _ELSEWHERE
        try:
            claims, _ = self._wanted(node.node)
            found = self._search(claims, node.node) if claims else []
        except SearchTimeout:
            return _TOO_LONG
        except DeviceError as error:
            raise PluginError(f'running "{NAME}" filter plugin: {error}') from error
        if found is None:
            return _NONE_LEFT
        if self._has_alternatives:
            ranks = [{taken.need.request: taken.need.rank for taken in devices} for devices in found]
            self._ranks[node.name] = sum(MOST_ALTERNATIVES - rank for one in ranks for rank in one.values())
        return None

    def decide(self, node: core_v1.Node) -> list[Reserved] | None:
        """Return what the pod's claims get on a node; None where there is not enough. Raises DeviceError, SearchTimeout."""
        claims, wish = self._wanted(node)
        found = self._search(claims, node) if claims else []
        if found is None:
            return None
        done = [Reserved(claim) for claim in self._placed]
        for one, devices in zip(claims, found, strict=True):
            made = wish if one.claim.metadata.annotations.get(extended.ANNOTATION) else None
            result = allocation(one, devices, node)
            done.append(Reserved(one.claim, result, made.mappings if made is not None else None))
        return done

    def _search(self, claims: Sequence[Wanted], node: core_v1.Node) -> list[list[Taken]] | None:
        stock = self._stock
        return Search(claims, stock.inventory, stock.book, node, self._budget).run()

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
        return normalize([self._ranks.get(node.name, 0) for node in nodes], "up")


def has_resource(allocatable: Mapping[str, Any], resource: str) -> bool:
    """True where a node has an extended resource itself (of a device plugin)."""
    return str(allocatable.get(resource, "0")) not in ("", "0")


def available(claim: resource_v1.ResourceClaim, node: core_v1.Node) -> bool:
    found = claim.status.allocation.node_selector if claim.status.allocation is not None else None
    return found is None or any(term_matches(term, node) for term in found.node_selector_terms)
