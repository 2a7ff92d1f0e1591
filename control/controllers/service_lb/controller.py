"""Writes addresses of nodes into the statuses of Services of type LoadBalancer, and removes them. Events and finalizer are
those of upstream's service controller (cloud-provider/controllers/service), which this replaces in clusters without a cloud.

Disabled, it only removes the addresses, finalizers and records that it wrote: a Service with a finalizer that nothing
removes is never deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping

from control.controllers.context import Context
from control.controllers.service_lb import plan
from control.controllers.service_lb.host_ports import HostPorts, host_ports_of
from control.controllers.service_lb.node_addresses import NodeAddresses, facts
from control.controllers.service_lb.plan import FINALIZER, NodeAddress, NoLoadBalancer
from control.controllers.service_lb.port_claims import PortClaims
from control.controllers.service_lb.port_records import granted_ports, had_ports, recorded
from control.controllers.service_lb.ports import (
    ALLOWED,
    LoadBalancerPorts,
    Port,
    node_ports_of,
    ports_of,
    served_ports,
)
from control.controllers.service_lb.reports import Reports
from control.controllers.service_lb.service_addresses import ServiceAddresses, foreign_ips
from control.controllers.service_lb.service_writer import ServiceWriter
from control.controllers.service_lb.waiting import WAKE, WaitingServices
from control.controllers.step_counter import StepCounter
from kube.api import core_v1, discovery_v1, networking_v1
from kube.controller import Controller
from kube.informer import Change
from kube.object_names import key_of
from kube.port_ranges import NODES_OWN, PortRanges

log = logging.getLogger(__name__)
SERVICE_NAME = "kubernetes.io/service-name"
BALANCED, OF_SERVICE = "load-balanced", "service-name"
"""Names of indexes: Services that concern us, slices by Service."""


def _concerns(service: core_v1.Service) -> tuple[str, ...]:
    return ("yes",) if plan.wanted(service) or FINALIZER in service.metadata.finalizers else ()


def _owner(found: discovery_v1.EndpointSlice) -> tuple[str, ...]:
    name = found.metadata.labels.get(SERVICE_NAME)
    return (f"{found.metadata.namespace}/{name}",) if name else ()


class ServiceLoadBalancerController:
    """Follows Services, nodes and slices."""

    def __init__(
        self,
        context: Context,
        *,
        enabled: bool = True,
        reserved: Mapping[Port, str] = NODES_OWN,
        allowed: PortRanges = ALLOWED,
        pod_ranges: Collection[str] = (),
    ) -> None:
        self._enabled = enabled
        self._writer = ServiceWriter(context.client, context.clock)
        self._recorder = context.recorder("service-controller")
        self._services = context.informers.of(core_v1.Service)
        self._nodes = context.informers.of(core_v1.Node)
        self._slices = context.informers.of(discovery_v1.EndpointSlice)
        self._services.add_index(BALANCED, _concerns)
        self._slices.add_index(OF_SERVICE, _owner)
        self._pods = context.informers.of(core_v1.Pod)
        self._ports = LoadBalancerPorts(reserved, allowed)
        # Disabled, this may run with an API server that has no ServiceCIDRs.
        service_ranges = context.informers.of(networking_v1.ServiceCIDR) if enabled else None
        self._addresses = NodeAddresses(self._nodes, service_ranges, pod_ranges, context.clock)
        host_ports = HostPorts(self._pods)
        self._service_addresses = ServiceAddresses(self._services, host_ports)
        # One worker: Services get ports in the order of the queue.
        self.controller = Controller(
            "service load balancer", self.reconcile, workers=1, queue="service", clock=context.clock
        )
        self._waiting = WaitingServices(self._services, self.controller.enqueue)
        self._reports = Reports(self._recorder, self._waiting)
        self._claims = PortClaims(self._services, host_ports, self._ports, self._waiting.freed)
        self._services.subscribe(self._service_changed)
        self._nodes.subscribe(self._node_changed)
        if service_ranges is not None:
            service_ranges.subscribe(self._range_changed)
        self._slices.subscribe(self._slice_changed)
        self._pods.subscribe(self._pod_changed)

    async def run(self) -> None:
        """Work until cancelled. Services that had ports before this process began come first, of these the ones that are
        being deleted last, then all by age.
        """
        known = [each for each in self._services.by_index(BALANCED, "yes") if plan.wanted(each)]
        counter = StepCounter()
        for service in sorted(known, key=_rank) if self._enabled else ():
            await counter.count(1 + len(service.spec.ports))
            key = key_of(service)
            if had_ports(service):
                self._ports.restore(key, granted_ports(service))
            elif service.metadata.deletion_timestamp is None:
                try:
                    await self._claims.claim_all(key, service)
                except NoLoadBalancer as error:
                    log.info("%s: %s", key, error)
        await self.controller.run()

    # -- what changed ---------------------------------------------------------------------------------------------
    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        if any(each is not None and _concerns(each) for each in (change.old, change.new)):
            self.controller.enqueue(change.key)
        if change.type == "DELETED":  # there may be another one of that name already
            self._forget(change.key)
        if change.old is not None and (change.type == "DELETED" or change.old.spec != change.new.spec):
            self._waiting.freed(node_ports_of(change.old))
        if change.old is not None and foreign_ips(change.old):
            self._waiting.freed(ports_of(change.old))

    def _node_changed(self, change: Change[core_v1.Node]) -> None:
        before = facts(change.old) if change.old is not None else None
        after = facts(change.new) if change.type != "DELETED" else None
        if before != after:
            self._addresses_changed()

    def _range_changed(self, change: Change[networking_v1.ServiceCIDR]) -> None:
        if change.old is None or change.type == "DELETED" or change.old.spec.cidrs != change.new.spec.cidrs:
            self._addresses_changed()

    def _addresses_changed(self) -> None:
        self._addresses.changed()
        for service in self._services.by_index(BALANCED, "yes"):
            self.controller.enqueue(key_of(service))

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        for each in (change.old, change.new):
            for key in _owner(each) if each is not None else ():
                service = self._services.get(key)
                if service is not None and _concerns(service) and service.spec.external_traffic_policy == "Local":
                    self.controller.enqueue(key)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        """A host port may have become free for a Service that waits."""
        if change.old is not None and (ports := host_ports_of(change.old)):
            if change.type == "DELETED" or not host_ports_of(change.new):
                self._waiting.freed(ports)

    # -- what to do -----------------------------------------------------------------------------------------------
    async def reconcile(self, key: str) -> float | None:
        """Bring one Service's addresses to what they should be; return the seconds until more of them are known."""
        if key == WAKE:
            await self._waiting.wake()
            return None
        service = self._services.get(key)
        if service is None:
            self._forget(key)
        elif not self._enabled:
            if plan.ours(service, self._nodes.list()):
                await self._take_back(service)
            elif recorded(service):
                await self._writer.remove_record(service)
        elif plan.wanted(service) and service.metadata.deletion_timestamp is None:
            return await self._ensure(key, service)
        elif self._may_have_given(key, service):
            await self._take_back(service)
            self._forget(key)
        else:
            self._forget(key)
        return None

    def _may_have_given(self, key: str, service: core_v1.Service) -> bool:
        """Return whether the addresses of a Service that needs none may be ours, whatever its owner did to the finalizers."""
        ours = FINALIZER in service.metadata.finalizers and not service.spec.load_balancer_class
        return ours or plan.wanted(service) or self._ports.has_ports(key)

    def _forget(self, key: str) -> None:
        self._waiting.forget(key)
        self._release(key)

    def _release(self, key: str) -> None:
        self._waiting.freed(self._ports.release(key))

    async def _ensure(self, key: str, service: core_v1.Service) -> float | None:
        try:
            problem = await self._claims.claim_all(key, service)
        except NoLoadBalancer as error:
            self._reports.failed(service, str(error))
            await self._withdraw(key, service)
            return None
        serving = self._addresses.serving()
        later = self._addresses.valid_seconds()
        known = [each for each in serving if not self._service_addresses.is_cluster_ip(each.text)]
        wanted, unavailable = list[NodeAddress](), ""
        try:
            wanted = plan.balancer_addresses(service, known, self._slices.by_index(OF_SERVICE, key))
        except NoLoadBalancer as error:  # it keeps its ports: a Service that waits for one would not give it back
            unavailable = str(error)
        granted = self._ports.granted(key).intersection(ports_of(service))
        withheld = await self._service_addresses.withheld(service, granted, wanted)
        addresses = plan.listable([each.text for each in wanted if each.text not in withheld], len(granted))
        self._reports.result(service, unavailable or problem, addresses, withheld)
        await self._write(key, service, addresses, granted, partly=bool(problem))
        return later

    async def _write(
        self, key: str, service: core_v1.Service, addresses: list[str], granted: frozenset[Port], *, partly: bool
    ) -> None:
        """Write the addresses of a Service with the ports that it was granted, `partly` if it wants more."""
        given = plan.given(service)
        if addresses and not given:
            self._recorder.event(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
            await self._writer.finalizer(service, wanted=True)
        if partly:  # the nodes may serve more of its ports than it keeps, until its status is written
            self._ports.keep(key, served_ports(service))
        service = await self._writer.addresses(service, addresses, granted)
        if partly:
            self._waiting.freed(self._ports.restrict(key, granted))
        if addresses and given:  # its owner may have removed it; a conflict does not delay the addresses
            await self._writer.finalizer(service, wanted=True)
        if addresses and not given:
            self._recorder.event(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")
        elif addresses and set(addresses) != set(given):
            self._recorder.event(service, "Normal", "UpdatedLoadBalancer", "Updated load balancer with new hosts")

    async def _withdraw(self, key: str, service: core_v1.Service) -> None:
        """Remove the addresses of a Service that cannot have its ports, and release these."""
        if had_ports(service) or self._ports.has_ports(key):
            # The nodes serve the ports until the addresses are removed, which may fail.
            self._ports.keep(key, ports_of(service))
            await self._writer.clear(service, always=True)
        self._release(key)

    async def _take_back(self, service: core_v1.Service) -> None:
        """Take addresses and finalizer from a Service: other finalizers may keep it, and for as long the nodes serve it."""
        metadata, allocated = service.metadata, self._ports.has_ports(key_of(service))
        if given := bool(plan.given(service)) or FINALIZER in metadata.finalizers:
            self._recorder.event(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        if metadata.deletion_timestamp is None or metadata.finalizers != [FINALIZER]:
            service = await self._writer.clear(service, always=allocated)
        await self._writer.finalizer(service, wanted=False)
        if given:
            self._recorder.event(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")


def _rank(service: core_v1.Service) -> tuple[bool, bool, str, str]:
    metadata = service.metadata
    deleted = metadata.deletion_timestamp is not None
    return not had_ports(service), deleted, metadata.creation_timestamp or "", key_of(service)
