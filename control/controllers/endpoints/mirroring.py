"""EndpointSlice mirroring: copies manually written Endpoints to EndpointSlices, which proxies read.

For Services without selector only; Endpoints that the endpoints controller manages have slices already, and a label keeps
others out (skip-mirror). Upstream: pkg/controller/endpointslicemirroring.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers.context import Context
from control.controllers.endpoints.endpoints import MANAGED_BY as ENDPOINTS_MANAGED_BY
from control.controllers.endpoints.endpoints import MANAGER as ENDPOINTS_MANAGER
from control.controllers.endpoints.mirrored_slices import MANAGER, MOST_PER_SUBSET, Slice, plan, slices_of
from control.controllers.endpoints.slice_plan import MANAGED_BY, SERVICE_NAME
from control.controllers.overlay import Overlay
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import name_of, namespace_of

SKIP = "endpointslice.kubernetes.io/skip-mirror"
LEADER = "control-plane.alpha.kubernetes.io/leader"
_INVALID = "Skipped %d invalid IP addresses when mirroring to EndpointSlices"
_TOO_MANY = "A max of %d addresses can be mirrored to EndpointSlices per Endpoints subset. %d addresses were skipped"
MIRRORED = "mirrored-endpoints"
"""Name of the slices index by Endpoints."""


def by_mirrored(found: Slice) -> Iterable[str]:
    """Index function: the key of the Endpoints that a slice mirrors."""
    labels = found.metadata.labels
    if labels.get(MANAGED_BY) != MANAGER or SERVICE_NAME not in labels:
        return ()
    return (f"{found.metadata.namespace}/{labels[SERVICE_NAME]}",)


def is_mirrored(endpoints: core_v1.Endpoints | None, service: core_v1.Service | None) -> bool:
    """True if Endpoints have to be mirrored."""
    if endpoints is None or service is None or service.spec.selector:
        return False
    metadata = endpoints.metadata
    return (
        metadata.labels.get(SKIP) != "true"
        and metadata.labels.get(ENDPOINTS_MANAGED_BY) != ENDPOINTS_MANAGER
        and LEADER not in metadata.annotations
        and metadata.deletion_timestamp is None
    )


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
        self.controller = Controller(
            "endpointslice mirroring",
            self.reconcile,
            workers=6,
            each=2,
            queue="endpoint_slice_mirroring",
            clock=context.clock,
        )
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
        wanted = list[Slice]()
        if endpoints is not None and is_mirrored(endpoints, service):
            wanted, skipped, invalid = await slices_of(endpoints)
            if invalid:
                self._recorder.event(endpoints, "Warning", "InvalidIPAddress", _INVALID % invalid)
            if skipped:
                self._recorder.event(
                    endpoints, "Warning", "TooManyAddressesToMirror", _TOO_MANY % (MOST_PER_SUBSET, skipped)
                )
        create, update, delete = await plan(wanted, existing)
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
        await delete_if_present(self._client, Slice, name_of(found), namespace_of(found))
        self._latest.deleted(found)
