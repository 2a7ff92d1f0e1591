"""EndpointSlices: keep the slices of each Service with a selector in step with its pods, at once.

There is no batching delay: changes that come while a Service is being written are taken together in the next turn, which
is all the batching that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.controllers import metrics
from control.controllers.batch_delay import BatchDelay
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from control.controllers.endpoints.backends import (
    PAIR,
    by_label_pair,
    follow_pods,
    pods_of,
    selecting_services,
    without_traffic,
)
from control.controllers.endpoints.slice_plan import MANAGED_BY, MANAGER, SERVICE_NAME, ZONE, plan
from control.controllers.endpoints.target_ports import TargetPorts
from control.controllers.endpoints.trigger_time import TriggerTimes
from control.controllers.overlay import Overlay
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1, discovery_v1
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.informer import Change
from kube.object_names import key_of, name_of, namespace_of

SERVICE = "managed-service"
"""Name of the slices index by Service."""


def by_managed_service(found: discovery_v1.EndpointSlice) -> Iterable[str]:
    """Index function: the key of the Service of a slice that this controller manages."""
    labels = found.metadata.labels
    if labels.get(MANAGED_BY) != MANAGER or SERVICE_NAME not in labels:
        return ()
    return (f"{found.metadata.namespace}/{labels[SERVICE_NAME]}",)


class EndpointSliceController:
    """Follows Services, pods, nodes and slices."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("endpoint-slice-controller")
        self._services = context.informers.of(core_v1.Service)
        self._pods = context.informers.of(core_v1.Pod)
        self._nodes = context.informers.of(core_v1.Node)
        self._slices = context.informers.of(discovery_v1.EndpointSlice)
        self._service_selectors = selecting_services(self._services)
        self._pods.add_index(PAIR, by_label_pair)
        self._slices.add_index(SERVICE, by_managed_service)
        self._latest = Overlay(self._slices, context.clock)
        self._trigger_times = TriggerTimes()
        self._batch_delay = BatchDelay()
        self.controller = Controller(
            "endpointslice", self.reconcile, workers=15, each=5, queue="endpoint_slice", clock=context.clock
        )
        self._services.subscribe(lambda change: self.controller.enqueue(change.key))
        follow_pods(
            self._pods,
            self._service_selectors,
            lambda key: self.controller.enqueue_after(key, self._batch_delay.wait(key)),
        )
        self._nodes.subscribe(self._node_changed)
        self._slices.subscribe(self._slice_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        """Endpoints carry their node's zone."""
        zones = {node.metadata.labels.get(ZONE) for node in (change.old, change.new) if node is not None}
        if len(zones) > 1 or (change.type == "ADDED" and zones != {None}):
            for service in self._services.list():
                self.controller.enqueue(key_of(service))

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        """Reconcile a slice that another client changed or deleted."""
        for found in (change.old, change.new):
            for key in by_managed_service(found) if found is not None else ():
                self.controller.enqueue_after(key, self._batch_delay.wait(key))

    async def reconcile(self, key: str) -> None:
        """Write the slices of one Service."""
        service = self._services.get(key)
        if service is None or service.spec.type == "ExternalName" or not service.spec.selector:
            self._trigger_times.forget(key)
            self._batch_delay.forget(key)
            return  # what there is stays, as upstream leaves it: the slices of a Service that is gone go with their owner
        if service.metadata.deletion_timestamp is not None:
            return
        pods = await pods_of(service, self._pods, self._service_selectors)
        ports = TargetPorts(service)
        await ports.read(pods)
        existing = self._latest.current(self._slices.by_index(SERVICE, key), f"{key}-")
        existing = [found for found in existing if key in by_managed_service(found)]
        self._batch_delay.record(key, len(pods) + len(service.spec.ports))
        trigger_time = self._trigger_times.next(key, service, pods)
        nodes = {name: node for pod in pods if (name := pod.spec.node_name) and (node := self._nodes.get(name))}
        changes = plan(service, pods, nodes, existing, trigger_time, ports)
        try:
            await self._apply(changes.create, changes.update)
            await self._delete(changes.delete)
        except StatusError as error:
            metrics.SLICE_SYNCS.add("stale" if error.conflict or error.not_found else "error")
            self._trigger_times.forget(key)
            if namespace_terminating(error):
                return
            if not error.conflict and not error.not_found:
                message = f"Error updating Endpoint Slices for Service {key}: {error}"
                self._recorder.event(service, "Warning", "FailedToUpdateEndpointSlices", message)
            raise
        metrics.SLICE_SYNCS.add("success")
        self._recorder.decisions.changed(service, "pods", without_traffic(service, pods))

    async def _apply(self, create: list[discovery_v1.EndpointSlice], update: list[discovery_v1.EndpointSlice]) -> None:
        for found in create:
            self._latest.wrote(await self._client.create(found))
            metrics.SLICE_CHANGES.add("create")

        async def write(found: discovery_v1.EndpointSlice) -> None:
            self._latest.wrote(await self._client.update(found))
            metrics.SLICE_CHANGES.add("update")

        failure = await for_each(update, write)
        if failure is not None:
            raise failure

    async def _delete(self, doomed: list[discovery_v1.EndpointSlice]) -> None:
        for found in doomed:
            await delete_if_present(self._client, discovery_v1.EndpointSlice, name_of(found), namespace_of(found))
            self._latest.deleted(found)
            metrics.SLICE_CHANGES.add("delete")
