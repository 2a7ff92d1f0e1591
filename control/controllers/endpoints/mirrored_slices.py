"""EndpointSlices that mirror an Endpoints object, and the writes that lead to them from the existing ones.

Subsets with equal ports share a slice. Upstream also splits subsets by port (RepackSubsets), which takes ports times addresses;
proxies read the same from both. All slices share one map of labels and one of annotations. What is written is limited: each
slice stores the metadata of the Endpoints once more.
Upstream: pkg/controller/endpointslicemirroring/reconciler.go.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import msgspec

from control.controllers.ownership import controller_reference
from control.controllers.step_counter import ENTRIES_PER_STEP, StepCounter
from kube.api import core_v1, discovery_v1, meta_v1
from kube.ip_addresses import canonical, family
from kube.object_names import name_of, namespace_of

from .slice_plan import MANAGED_BY, SERVICE_NAME

Slice = discovery_v1.EndpointSlice
MANAGER = "endpointslicemirroring-controller.k8s.io"
MOST_PER_SUBSET = 1000
MOST_SLICES = 1000
"""Slices of one Endpoints object."""
METADATA_CHARACTERS = 16 << 20
"""Characters of labels and annotations that all slices of one Endpoints object may store together."""
_NOT_MIRRORED = {
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
}
_Ports = tuple[tuple[object, ...], ...]


class _Addresses:
    """Addresses of the subsets with equal ports. One that is ready and not ready is not ready, as upstream."""

    def __init__(self, ports: Sequence[core_v1.EndpointPort]) -> None:
        self.ports = [
            discovery_v1.EndpointPort(
                name=port.name or "", port=port.port, protocol=port.protocol or "TCP", app_protocol=port.app_protocol
            )
            for port in ports
        ]
        self._found: dict[tuple[str, str], tuple[core_v1.EndpointAddress, bool]] = {}

    def add(self, address: core_v1.EndpointAddress, *, ready: bool) -> None:
        key = canonical(address.ip), (address.target_ref.uid or "") if address.target_ref is not None else ""
        first, was_ready = self._found.get(key, (address, True))
        self._found[key] = first, ready and was_ready

    def __len__(self) -> int:
        return len(self._found)

    def endpoints(self) -> dict[str, list[discovery_v1.Endpoint]]:
        """Return the endpoints by family, the ready ones first, no more than MOST_PER_SUBSET."""
        found = sorted(self._found.values(), key=lambda each: not each[1])
        families: dict[str, list[discovery_v1.Endpoint]] = {}
        for address, ready in found[:MOST_PER_SUBSET]:
            families.setdefault(family(address.ip), []).append(_endpoint(address, ready=ready))
        return families


def _endpoint(address: core_v1.EndpointAddress, *, ready: bool) -> discovery_v1.Endpoint:
    return discovery_v1.Endpoint(
        addresses=[canonical(address.ip)],
        conditions=discovery_v1.EndpointConditions(ready=ready),
        hostname=address.hostname,
        node_name=address.node_name,
        target_ref=address.target_ref,
    )


class Mirrored(NamedTuple):
    """The slices that mirror Endpoints, one for each list of ports and address family."""

    slices: list[Slice]
    left_out: int
    """Addresses beyond the limits."""
    invalid: int
    """Addresses that are none."""


async def slices_of(endpoints: core_v1.Endpoints) -> Mirrored:
    """Return the slices that mirror Endpoints; addresses have their canonical form, which slices require."""
    counter, groups, invalid = StepCounter(), dict[_Ports, _Addresses](), 0
    for subset in endpoints.subsets:
        await counter.count(1 + len(subset.ports))
        group = groups.setdefault(_key(subset.ports), _Addresses(subset.ports))
        for ready, addresses in ((True, subset.addresses), (False, subset.not_ready_addresses)):
            for address in addresses:
                await counter.count()
                if family(address.ip):
                    group.add(address, ready=ready)
                else:
                    invalid += 1
    metadata, most = _metadata(endpoints)
    made, left_out = list[Slice](), 0
    for group in groups.values():
        await counter.count(1 + min(len(group), MOST_PER_SUBSET))
        left_out += max(0, len(group) - MOST_PER_SUBSET)
        for kind, found in group.endpoints().items():
            if len(made) < most:
                made.append(Slice(metadata=metadata, address_type=kind, endpoints=found, ports=group.ports))
            else:
                left_out += len(found)
    return Mirrored(made, left_out, invalid)


def _key(ports: Iterable[core_v1.EndpointPort]) -> _Ports:
    return tuple(sorted((p.name or "", p.port, p.protocol or "TCP", p.app_protocol or "") for p in ports))


def _metadata(endpoints: core_v1.Endpoints) -> tuple[meta_v1.ObjectMeta, int]:
    """Return the metadata that all slices share, and the number of slices that may have it."""
    name = name_of(endpoints)
    metadata = meta_v1.ObjectMeta(
        generate_name=f"{name}-",
        namespace=namespace_of(endpoints),
        labels={**endpoints.metadata.labels, SERVICE_NAME: name, MANAGED_BY: MANAGER},
        annotations={k: v for k, v in endpoints.metadata.annotations.items() if k not in _NOT_MIRRORED},
        owner_references=[controller_reference(endpoints)],
    )
    length = sum(len(k) + len(v) for each in (metadata.labels, metadata.annotations) for k, v in each.items())
    return metadata, max(1, min(MOST_SLICES, METADATA_CHARACTERS // length))


async def plan(wanted: Sequence[Slice], existing: Sequence[Slice]) -> tuple[list[Slice], list[Slice], list[Slice]]:
    """Return (create, update, delete): slices keep their names as far as families match, those of the same ports first."""
    update, counter = list[Slice](), StepCounter()
    kept, left = _paired(wanted, existing, _shape)
    renewed, left = _paired([desired for desired, same in kept if same is None], left, lambda found: found.address_type)
    for desired, same in [*kept, *renewed]:
        if same is not None:
            metadata = desired.metadata
            entries = len(metadata.labels) + len(metadata.annotations) + len(desired.endpoints) + len(desired.ports)
            await counter.count(1 + entries // ENTRIES_PER_STEP)
            changed = _in_place_of(same, desired)
            if changed != same:
                update.append(changed)
    create = [desired for desired, same in renewed if same is None]
    return create, update, left


def _paired(
    wanted: Sequence[Slice], existing: Sequence[Slice], kind: Callable[[Slice], object]
) -> tuple[list[tuple[Slice, Slice | None]], list[Slice]]:
    """Give each wanted slice the first that exists of its kind; return the pairs and the slices that are left."""
    places: dict[object, deque[int]] = {}
    for place, found in enumerate(existing):
        places.setdefault(kind(found), deque()).append(place)
    pairs, taken = list[tuple[Slice, Slice | None]](), set[int]()
    for desired in wanted:
        free = places.get(kind(desired))
        if free:
            taken.add(free[0])
        pairs.append((desired, existing[free.popleft()] if free else None))
    return pairs, [found for place, found in enumerate(existing) if place not in taken]


def _shape(found: Slice) -> tuple[object, ...]:
    return found.address_type, *((p.name, p.port, p.protocol, p.app_protocol) for p in found.ports)


def _in_place_of(same: Slice, desired: Slice) -> Slice:
    metadata = msgspec.structs.replace(
        same.metadata, labels=desired.metadata.labels, annotations=desired.metadata.annotations
    )
    return msgspec.structs.replace(desired, metadata=metadata, api_version=same.api_version, kind=same.kind)
