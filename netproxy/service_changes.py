"""Takes changes of Services, EndpointSlices, nodes and ports in use into the table, and wakes the proxy's loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime

from kube.api import core_v1, discovery_v1
from kube.clock import Clock, parse_time
from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.balancer_ports import PortInUse
from netproxy.endpoints import NodeView
from netproxy.health import Health
from netproxy.model import owner_of
from netproxy.port_checks import Find, PortChecks
from netproxy.service_table import ServiceTable
from netproxy.socket_channel import Address

log = logging.getLogger(__name__)
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
ZONE_LABEL = "topology.kubernetes.io/zone"


class ServiceChanges:
    """Subscribes to both informers. `wake` is set while the table has changes that the proxy has not taken."""

    def __init__(
        self,
        table: ServiceTable,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        families: tuple[int, ...],
        *,
        health: Health,
        clock: Clock,
        on_change: Callable[[str], None] | None,
        on_port_in_use: Callable[[core_v1.Service, PortInUse], None] | None,
        find_ports_in_use: Find,
    ) -> None:
        self.table, self.wake = table, asyncio.Event()
        self._families, self._health, self._clock = families, health, clock
        self._on_change, self._on_port_in_use = on_change, on_port_in_use
        self.port_checks = PortChecks(table, find_ports_in_use, clock, self._port_in_use, self._wake_after_lookup)
        self._triggers: list[tuple[str, datetime]] = []
        services.subscribe(self._service_changed)
        slices.subscribe(self._slice_changed)

    def take_triggers(self) -> list[tuple[str, datetime]]:
        """Return since when changes of endpoints wait to be written, each with its address type, and forget them."""
        triggers, self._triggers = self._triggers, []
        return triggers

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        metrics.SERVICE_CHANGES.inc()
        metrics.SERVICES_PENDING.inc()
        if change.type == "DELETED":
            self.table.delete_service(change.key)
        else:
            self.table.set_service(change.key, change.new)
        self._queue(change.key)

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        metrics.ENDPOINT_CHANGES.inc()
        metrics.ENDPOINTS_PENDING.inc()
        owner = owner_of(change.new)
        if change.old is not None and owner_of(change.old) != owner:
            self.table.delete_slice(change.old)
            self._queue(owner_of(change.old))
        if change.type == "DELETED":
            self.table.delete_slice(change.new)
        else:
            self.table.set_slice(change.new)
            self._note_trigger(change.new)
        self._queue(owner)

    def _note_trigger(self, slice_: discovery_v1.EndpointSlice) -> None:
        text = slice_.metadata.annotations.get(TRIGGER_TIME)
        if text:
            try:
                self._triggers.append((slice_.address_type, parse_time(text)))
            except ValueError:
                log.debug("unreadable trigger time %r", text)

    def set_node(self, node: core_v1.Node) -> None:
        """Store this node's zone, for topology hints."""
        self.table.set_node(NodeView(node.metadata.name or "", node.metadata.labels.get(ZONE_LABEL, "")))
        self.wake_if_dirty()

    def set_other_node_address(self, address: str, *, present: bool) -> None:
        """Store that an address is another node's own, or no longer."""
        self.table.set_other_node_address(address, present=present)
        self.wake_if_dirty()

    def set_own_addresses(self, addresses: frozenset[str]) -> None:
        """Store this node's own addresses, at which its daemons keep their ports."""
        self.table.set_own_addresses(addresses)
        self.wake_if_dirty()

    def set_gateway_addresses(self, addresses: frozenset[Address]) -> None:
        """Store the addresses on which the node's gateway listens: only to these its Services lead."""
        self.table.set_gateway_addresses(addresses)
        self.wake_if_dirty()

    def _port_in_use(self, in_use: PortInUse) -> None:
        log.warning("Service %s is not served here: %s", in_use.key, in_use)
        service = self.table.service(in_use.key)
        if service is not None and self._on_port_in_use is not None:
            self._on_port_in_use(service, in_use)

    def _wake_after_lookup(self) -> None:
        if self.table.dirty or self.table.balancer_ports.unknown:
            self._queue("")

    def wake_if_dirty(self) -> None:
        if self.table.dirty:
            self._queue("")

    def _queue(self, key: str) -> None:
        if self._on_change is not None and key:
            self._on_change(key)
        if not self.wake.is_set():
            for family in self._families:
                metrics.LAST_QUEUED.labels(metrics.family_label(family)).set(self._clock.now().timestamp())
            self._health.queued()
            self.wake.set()
