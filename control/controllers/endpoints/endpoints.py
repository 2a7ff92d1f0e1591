"""Endpoints: the deprecated form of EndpointSlices, one object for each Service, for clients that still read it.

Addresses with the same ports share a subset; more than 1 000 addresses are truncated, as upstream.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from control.controllers.batch_delay import BatchDelay
from control.controllers.context import Context
from control.controllers.endpoints.backends import (
    PAIR,
    addresses,
    by_label_pair,
    follow_pods,
    hostname_of,
    is_backend,
    is_headless,
    is_ready,
    pods_of,
    selecting_services,
    target_of,
)
from control.controllers.endpoints.slice_plan import HEADLESS
from control.controllers.endpoints.target_ports import Ports, TargetPorts
from control.controllers.endpoints.trigger_time import ANNOTATION, TriggerTimes
from control.controllers.overlay import Overlay
from control.controllers.pod_control import namespace_terminating
from kube.api import core_v1, meta_v1
from kube.controller import Controller
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of

MANAGED_BY, MANAGER = "endpoints.kubernetes.io/managed-by", "endpoint-controller"
OVER_CAPACITY = "endpoints.kubernetes.io/over-capacity"
MOST_ADDRESSES = 1000


def subsets_of(
    service: core_v1.Service, pods: Sequence[core_v1.Pod], target_ports: TargetPorts | None = None
) -> list[core_v1.EndpointSubset]:
    """Return the subsets that the pods give, in a stable order; `target_ports` may know the pods' ports already."""
    target_ports = target_ports or TargetPorts(service)
    publish = bool(service.spec.publish_not_ready_addresses)
    family = (service.spec.ip_families or ["IPv4"])[0]
    groups: dict[int, tuple[Ports, list[core_v1.EndpointAddress], list[core_v1.EndpointAddress]]] = {}
    for pod in pods:
        if not is_backend(pod, include_terminating=publish):
            continue
        ip = next((ip for ip in addresses(pod) if (":" in ip) == (family == "IPv6")), None)
        if ip is None:
            continue
        ports = target_ports.of(pod)
        if service.spec.ports and not ports:
            continue
        address = core_v1.EndpointAddress(
            ip=ip, hostname=hostname_of(pod, service), node_name=pod.spec.node_name, target_ref=target_of(pod)
        )
        _, ready, waiting = groups.setdefault(id(ports), (ports, [], []))
        (ready if publish or is_ready(pod) else waiting).append(address)
    return [
        core_v1.EndpointSubset(
            addresses=sorted(ready, key=_order),
            not_ready_addresses=sorted(waiting, key=_order),
            ports=[
                core_v1.EndpointPort(name=name or None, protocol=protocol, port=number, app_protocol=app)
                for name, protocol, number, app in ports
            ],
        )
        for ports, ready, waiting in sorted(groups.values(), key=lambda group: str(group[0]))
    ]


def _order(address: core_v1.EndpointAddress) -> tuple[str, str]:
    return (address.ip, address.target_ref.uid or "" if address.target_ref else "")


def truncated(subsets: list[core_v1.EndpointSubset]) -> tuple[list[core_v1.EndpointSubset], bool]:
    """Cut to the most addresses that one object may have, the ready ones first."""
    ready = sum(len(s.addresses) for s in subsets)
    if ready + sum(len(s.not_ready_addresses) for s in subsets) <= MOST_ADDRESSES:
        return subsets, False
    room_ready = min(ready, MOST_ADDRESSES)
    room_waiting = MOST_ADDRESSES - room_ready
    result = []
    for subset in subsets:
        kept = msgspec.structs.replace(
            subset,
            addresses=subset.addresses[:room_ready],
            not_ready_addresses=subset.not_ready_addresses[:room_waiting],
        )
        room_ready -= len(kept.addresses)
        room_waiting -= len(kept.not_ready_addresses)
        if kept.addresses or kept.not_ready_addresses:
            result.append(kept)
    return result, True


class EndpointsController:
    """Follows Services and pods."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._recorder = context.recorder("endpoint-controller")
        self._services = context.informers.of(core_v1.Service)
        self._pods = context.informers.of(core_v1.Pod)
        self._endpoints = context.informers.of(core_v1.Endpoints)
        self._service_selectors = selecting_services(self._services)
        self._pods.add_index(PAIR, by_label_pair)
        self._latest = Overlay(self._endpoints, context.clock)
        self._trigger_times = TriggerTimes()
        self._batch_delay = BatchDelay()
        self.controller = Controller(
            "endpoints", self.reconcile, workers=6, each=2, queue="endpoint", clock=context.clock
        )
        self._services.subscribe(lambda change: self.controller.enqueue(change.key))
        follow_pods(
            self._pods,
            self._service_selectors,
            lambda key: self.controller.enqueue_after(key, self._batch_delay.wait(key)),
        )
        self._endpoints.subscribe(
            lambda change: self.controller.enqueue_after(change.key, self._batch_delay.wait(change.key))
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    async def reconcile(self, key: str) -> None:
        """Write the Endpoints of one Service; those of a Service without selector are managed by others."""
        service, existing = self._services.get(key), self._latest.get(key)
        if service is None:
            self._trigger_times.forget(key)
            self._batch_delay.forget(key)
            if existing is not None and existing.metadata.labels.get(MANAGED_BY) == MANAGER:
                await self._delete(existing)
            return
        if service.spec.type == "ExternalName" or not service.spec.selector:
            return
        pods = await pods_of(service, self._pods, self._service_selectors)
        ports = TargetPorts(service)
        await ports.read(pods)
        existing = self._latest.get(key)
        self._batch_delay.record(key, len(pods) + len(service.spec.ports))
        trigger_time = self._trigger_times.next(key, service, pods)
        wanted = _wanted(service, subsets_of(service, pods, ports), existing, trigger_time)
        if existing is not None and _same(existing, wanted):
            return
        try:
            if existing is None:
                self._latest.wrote(await self._client.create(wanted))
            else:
                self._latest.wrote(await self._client.update(wanted))
        except StatusError as error:
            self._trigger_times.forget(key)
            if namespace_terminating(error):
                return
            if not error.conflict and not error.already_exists:
                verb = "create" if existing is None else "update"
                message = f"Failed to {verb} endpoint {key}: {error}"
                self._recorder.event(service, "Warning", f"FailedTo{verb.title()}Endpoint", message)
            raise

    async def _delete(self, existing: core_v1.Endpoints) -> None:
        await delete_if_present(self._client, core_v1.Endpoints, name_of(existing), namespace_of(existing))
        self._latest.deleted(existing)


def _wanted(
    service: core_v1.Service,
    found: list[core_v1.EndpointSubset],
    existing: core_v1.Endpoints | None,
    trigger_time: str,
) -> core_v1.Endpoints:
    subsets, cut = truncated(found)
    labels = {k: v for k, v in service.metadata.labels.items() if k != HEADLESS}
    if is_headless(service):
        labels[HEADLESS] = ""
    labels[MANAGED_BY] = MANAGER
    base = existing.metadata if existing else meta_v1.ObjectMeta(name=name_of(service), namespace=namespace_of(service))
    annotations = {k: v for k, v in base.annotations.items() if k not in (ANNOTATION, OVER_CAPACITY)}
    if trigger_time:
        annotations[ANNOTATION] = trigger_time
    if cut:
        annotations[OVER_CAPACITY] = "truncated"
    return core_v1.Endpoints(
        metadata=msgspec.structs.replace(base, labels=labels, annotations=annotations), subsets=subsets
    )


def _same(existing: core_v1.Endpoints, wanted: core_v1.Endpoints) -> bool:
    """Compare all but the trigger time, which alone is no reason to write."""
    cut = OVER_CAPACITY in existing.metadata.annotations, OVER_CAPACITY in wanted.metadata.annotations
    return (
        existing.subsets == wanted.subsets and existing.metadata.labels == wanted.metadata.labels and cut[0] == cut[1]
    )
