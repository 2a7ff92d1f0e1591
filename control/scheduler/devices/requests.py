"""Device requests of a claim with their alternatives and device classes, as the search for devices needs them."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

import msgspec

from control.cel.devices import compile_selector
from control.cel.program import Program
from control.scheduler.devices.selector_results import digest_of
from kube import quantity
from kube.api import resource_v1
from kube.device_taints import DeviceTolerations

ALL = "All"
MOST_RESULTS = 32
"""Maximum number of devices of one claim (AllocationResultsMaxSize)."""
MOST_ALTERNATIVES = 8


class DeviceError(Exception):
    """A claim is invalid: its class or its selectors are wrong."""


class MissingClass(Exception):
    """A request names a device class that does not exist."""


class Selector:
    """One expression of a request or its class; `where` names it in error messages."""

    __slots__ = ("_program", "digest", "expression", "where")

    def __init__(self, expression: str, where: str) -> None:
        self.expression, self.where, self.digest = expression, where, digest_of(expression)
        self._program: Program | None = None

    def program(self) -> Program:
        """Compile the expression; raises CompileError, and TooMuchHere if it exceeds the cost limit of the event loop."""
        if self._program is None:
            self._program = compile_selector(self.expression)
        return self._program


class RequestAlternative(msgspec.Struct, frozen=True):
    """An exact device request, or one of its `firstAvailable` subrequests, with its class and selectors."""

    name: str
    """Name in allocation results: `request` or `request/subrequest`."""
    request: str
    rank: int
    """Index among the request's alternatives; the preferred one is first."""
    device_class: resource_v1.DeviceClass
    selectors: tuple[Selector, ...]
    count: int
    everything: bool
    admin: bool
    tolerations: DeviceTolerations
    capacity: Mapping[str, Decimal]


class ClaimToAllocate(msgspec.Struct, frozen=True):
    """A claim to allocate: for each request its alternatives."""

    claim: resource_v1.ResourceClaim
    requests: tuple[tuple[RequestAlternative, ...], ...]

    @property
    def constraints(self) -> list[resource_v1.DeviceConstraint]:
        return self.claim.spec.devices.constraints if self.claim.spec.devices else []


def claim_to_allocate(
    claim: resource_v1.ResourceClaim, classes: Mapping[str, resource_v1.DeviceClass]
) -> ClaimToAllocate:
    """Resolve a claim; raises MissingClass and DeviceError."""
    requests = []
    for request in claim.spec.devices.requests if claim.spec.devices else ():
        if request.exactly is not None:
            alternatives = [_alternative(claim, request.exactly, request.name, request.name, 0, classes)]
        else:
            alternatives = [
                _alternative(claim, part, f"{request.name}/{part.name}", request.name, rank, classes)
                for rank, part in enumerate(request.first_available)
            ]
        requests.append(tuple(alternatives))
    return ClaimToAllocate(claim, tuple(requests))


def _alternative(
    claim: resource_v1.ResourceClaim,
    part: resource_v1.ExactDeviceRequest | resource_v1.DeviceSubRequest,
    name: str,
    request: str,
    rank: int,
    classes: Mapping[str, resource_v1.DeviceClass],
) -> RequestAlternative:
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
    capacity_requests = part.capacity.requests if part.capacity is not None else {}
    return RequestAlternative(
        name,
        request,
        rank,
        found,
        tuple(selectors),
        part.count or 1,
        part.allocation_mode == ALL,
        isinstance(part, resource_v1.ExactDeviceRequest) and bool(part.admin_access),
        DeviceTolerations(part.tolerations),
        {capacity: quantity.parse(amount) for capacity, amount in capacity_requests.items()},
    )
