"""EndpointSlice mirroring: Endpoints that somebody wrote by hand, as slices, which is what proxies read.

For Services without selector only; Endpoints that the endpoints controller manages have slices already, and a label keeps
others out (skip-mirror). Upstream: pkg/controller/endpointslicemirroring.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import msgspec

from control.controllers.context import Context
from control.controllers.endpoints.endpoints import MANAGED_BY as ENDPOINTS_MANAGED_BY
from control.controllers.endpoints.endpoints import MANAGER as ENDPOINTS_MANAGER
from control.controllers.endpoints.slice_plan import MANAGED_BY, SERVICE_NAME
from control.controllers.overlay import Overlay
from control.controllers.ownership import controller_reference
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1, discovery_v1, meta_v1
from kube.client import name_of, namespace_of
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change

MANAGER = "endpointslicemirroring-controller.k8s.io"
SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
MOST_PER_SUBSET = 1000
MIRRORED = "mirrored-endpoints"
"""Name of the slices index by Endpoints."""
Slice = discovery_v1.EndpointSlice


def by_mirrored(found: Slice) -> Iterable[str]:
    """Index function: the key of the Endpoints that a slice mirrors."""
    labels = found.metadata.labels
    if labels.get(MANAGED_BY) != MANAGER or SERVICE_NAME not in labels:
        return ()
    return (f"{found.metadata.namespace}/{labels[SERVICE_NAME]}",)


def is_mirrored(endpoints: core_v1.Endpoints | None, service: core_v1.Service | None) -> bool:
    """True where Endpoints have to be mirrored."""
    if endpoints is None or service is None or service.spec.selector:
        return False
    metadata = endpoints.metadata
    return (
        metadata.labels.get(SKIP) != "true"
        and metadata.labels.get(ENDPOINTS_MANAGED_BY) != ENDPOINTS_MANAGER
        and LEADER not in metadata.annotations
        and metadata.deletion_timestamp is None
    )


def slices_of(endpoints: core_v1.Endpoints) -> list[Slice]:
    """Return the slices that mirror Endpoints: one for each subset and address family that has addresses."""
    made: list[Slice] = []
    for subset in endpoints.subsets:
        ports = [
            discovery_v1.EndpointPort(
                name=port.name or "", port=port.port, protocol=port.protocol or "TCP", app_protocol=port.app_protocol
            )
            for port in subset.ports
        ]
        for family in ("IPv4", "IPv6"):
            listed = [(a, True) for a in subset.addresses] + [(a, False) for a in subset.not_ready_addresses]
            found = [
                discovery_v1.Endpoint(
                    addresses=[address.ip],
                    conditions=discovery_v1.EndpointConditions(ready=ready),
                    hostname=address.hostname,
                    node_name=address.node_name,
                    target_ref=address.target_ref,
                )
                for address, ready in listed
                if (":" in address.ip) == (family == "IPv6")
            ]
            if found:
                made.append(_slice(endpoints, family, found[:MOST_PER_SUBSET], ports))
    return made


def _slice(
    endpoints: core_v1.Endpoints,
    family: str,
    found: list[discovery_v1.Endpoint],
    ports: list[discovery_v1.EndpointPort],
) -> Slice:
    name = name_of(endpoints)
    kept = {k: v for k, v in endpoints.metadata.annotations.items() if k != LAST_APPLIED}
    return Slice(
        metadata=meta_v1.ObjectMeta(
            generate_name=f"{name}-",
            namespace=namespace_of(endpoints),
            labels={**endpoints.metadata.labels, SERVICE_NAME: name, MANAGED_BY: MANAGER},
            annotations=kept,
            owner_references=[controller_reference(endpoints)],
        ),
        address_type=family,
        endpoints=found,
        ports=ports,
    )


def plan(wanted: Sequence[Slice], existing: Sequence[Slice]) -> tuple[list[Slice], list[Slice], list[Slice]]:
    """Return (create, update, delete): slices keep their names as far as families match, those of the same ports first."""
    update = []
    kept, left = _paired(wanted, existing, _shape)
    renewed, left = _paired([wish for wish, same in kept if same is None], left, lambda found: found.address_type)
    for wish, same in [*kept, *renewed]:
        if same is not None:
            changed = _in_place_of(same, wish)
            if changed != same:
                update.append(changed)
    create = [wish for wish, same in renewed if same is None]
    return create, update, left


def _paired(
    wanted: Sequence[Slice], existing: Sequence[Slice], kind: Callable[[Slice], object]
) -> tuple[list[tuple[Slice, Slice | None]], list[Slice]]:
    """Give each wanted slice the first that exists of its kind; return the pairs and the slices that are left."""
    places: dict[object, deque[int]] = {}
    for place, found in enumerate(existing):
        places.setdefault(kind(found), deque()).append(place)
    pairs, taken = list[tuple[Slice, Slice | None]](), set[int]()
    for wish in wanted:
        free = places.get(kind(wish))
        if free:
            taken.add(free[0])
        pairs.append((wish, existing[free.popleft()] if free else None))
    return pairs, [found for place, found in enumerate(existing) if place not in taken]


def _shape(found: Slice) -> tuple[object, ...]:
    return found.address_type, *((p.name, p.port, p.protocol, p.app_protocol) for p in found.ports)


def _in_place_of(same: Slice, wish: Slice) -> Slice:
    metadata = msgspec.structs.replace(
        same.metadata, labels=wish.metadata.labels, annotations=wish.metadata.annotations
    )
    return msgspec.structs.replace(wish, metadata=metadata, api_version=same.api_version, kind=same.kind)


class EndpointSliceMirroringController:
    """Follows Endpoints, Services and slices."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("endpoint-slice-mirroring-controller")
        self._endpoints = context.informers.of(core_v1.Endpoints)
        self._services = context.informers.of(core_v1.Service)
        self._slices = context.informers.of(Slice)
        self._slices.add_index(MIRRORED, by_mirrored)
        self._latest = Overlay(self._slices, context.clock)
        self.controller = Controller("endpointslice mirroring", self.reconcile, workers=2, clock=context.clock)
        self._endpoints.subscribe(lambda change: self.controller.enqueue(change.key))
        self._services.subscribe(lambda change: self.controller.enqueue(change.key))
        self._slices.subscribe(self._slice_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _slice_changed(self, change: Change[Slice]) -> None:
        for key in by_mirrored(change.new):
            self.controller.enqueue(key)

    async def reconcile(self, key: str) -> None:
        """Write the slices of one Endpoints object."""
        endpoints, service = self._endpoints.get(key), self._services.get(key)
        existing = self._latest.current(self._slices.by_index(MIRRORED, key), f"{key}-")
        existing = [found for found in existing if key in by_mirrored(found)]
        wanted = slices_of(endpoints) if endpoints is not None and is_mirrored(endpoints, service) else []
        create, update, delete = plan(wanted, existing)
        try:
            for found in create:
                self._latest.wrote(await self._client.create(found))
            for found in update:
                self._latest.wrote(await self._client.update(found))
            for found in delete:
                await self._delete(found)
        except StatusError as error:
            if namespace_terminating(error):
                return
            if endpoints is not None and not error.conflict and not error.not_found:
                message = f"Error updating Endpoint Slices for Endpoints {key}: {error}"
                self._recorder.event(endpoints, "Warning", "FailedToUpdateEndpointSlices", message)
            raise

    async def _delete(self, found: Slice) -> None:
        try:
            await self._client.delete(Slice, name_of(found), namespace_of(found))
        except StatusError as error:
            if not error.not_found:
                raise
        self._latest.deleted(found)
