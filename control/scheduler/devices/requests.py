"""Requests of a claim, prepared for the search: with their alternatives, and with their classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal

from control.cel.devices import compile_selector
from control.cel.program import Program
from kube import quantity
from kube.api import resource_v1

ALL = "All"
MOST_RESULTS = 32
"""Devices of one claim (AllocationResultsMaxSize)."""
MOST_ALTERNATIVES = 8


class DeviceError(Exception):
    """A claim cannot be worked on at all: its class or its selectors are wrong."""


class MissingClass(Exception):
    """A request names a class that does not exist (yet)."""


class Selector:
    """One expression of a request or its class; `where` is how errors speak of it."""

    __slots__ = ("_program", "expression", "where")

    def __init__(self, expression: str, where: str) -> None:
        self.expression, self.where = expression, where
        self._program: Program | None = None

    def program(self) -> Program:
        """Return the expression compiled; raises CompileError, and TooMuchHere where that costs too much on the event loop."""
        if self._program is None:
            self._program = compile_selector(self.expression)
        return self._program


@dataclass(frozen=True, slots=True)
class Need:
    """One way to satisfy a request."""

    name: str
    """As allocations name it: `request` or `request/alternative`."""
    request: str
    rank: int
    """The place among the request's alternatives, the preferred one first."""
    device_class: resource_v1.DeviceClass
    selectors: tuple[Selector, ...]
    count: int
    everything: bool
    admin: bool
    tolerations: tuple[resource_v1.DeviceToleration, ...]
    capacity: Mapping[str, Decimal]


@dataclass(frozen=True, slots=True)
class Wanted:
    """A claim to allocate: for each request its alternatives."""

    claim: resource_v1.ResourceClaim
    requests: tuple[tuple[Need, ...], ...]

    @property
    def constraints(self) -> list[resource_v1.DeviceConstraint]:
        return self.claim.spec.devices.constraints if self.claim.spec.devices else []


def wanted(claim: resource_v1.ResourceClaim, classes: Mapping[str, resource_v1.DeviceClass]) -> Wanted:
    """Resolve a claim; raises MissingClass and DeviceError."""
    requests = []
    for request in claim.spec.devices.requests if claim.spec.devices else ():
        if request.exactly is not None:
            alternatives = [_need(claim, request.exactly, request.name, request.name, 0, classes)]
        else:
            alternatives = [
                _need(claim, part, f"{request.name}/{part.name}", request.name, rank, classes)
                for rank, part in enumerate(request.first_available)
            ]
        requests.append(tuple(alternatives))
    return Wanted(claim, tuple(requests))


def _need(
    claim: resource_v1.ResourceClaim,
    part: resource_v1.ExactDeviceRequest | resource_v1.DeviceSubRequest,
    name: str,
    request: str,
    rank: int,
    classes: Mapping[str, resource_v1.DeviceClass],
) -> Need:
    if not part.device_class_name:
        raise DeviceError(f"request {name}: unsupported request type")
    found = classes.get(part.device_class_name)
    if found is None:
        raise MissingClass(f"request {name}: device class {part.device_class_name} does not exist")
    selectors = [
        Selector(selector.cel.expression, f"class {part.device_class_name}: selector #{index}")
        for index, selector in enumerate(found.spec.selectors)
        if selector.cel is not None
    ]
    owner = f"claim {claim.metadata.namespace}/{claim.metadata.name}"
    selectors += [
        Selector(selector.cel.expression, f"{owner}: selector #{index}")
        for index, selector in enumerate(part.selectors)
        if selector.cel is not None
    ]
    asked = part.capacity.requests if part.capacity is not None else {}
    return Need(
        name,
        request,
        rank,
        found,
        tuple(selectors),
        part.count or 1,
        part.allocation_mode == ALL,
        isinstance(part, resource_v1.ExactDeviceRequest) and bool(part.admin_access),
        tuple(part.tolerations),
        {capacity: quantity.parse(amount) for capacity, amount in asked.items()},
    )
