"""The service proxy's loop: changes of Services, EndpointSlices and this Node in, changes of the kernel out.

Informer handlers only mark what changed and wake the loop, which takes everything that came in during the same turn of
the event loop (and during the previous write) as one delta. There is no minimum period unless one is asked for. A write that
fails leaves the backend knowing that it must compare everything; the verifier's next look does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime

from kube.api import core_v1, discovery_v1
from kube.clock import SYSTEM, Clock, parse_time
from kube.informer import Change, Informer
from netproxy import conntrack, large_changes, metrics, reports
from netproxy.backend import Backend
from netproxy.endpoints import NodeView
from netproxy.errors import WriteError
from netproxy.flow_cleaner import FlowCleaner
from netproxy.health import Health
from netproxy.left_out import LIMIT, LeftOut
from netproxy.listeners import Listeners, listening
from netproxy.model import ServicePort, owner_of
from netproxy.service_limits import PAIRS
from netproxy.service_table import ServiceTable, Taken
from netproxy.service_writer import ServiceWriter

log = logging.getLogger(__name__)

CHECK_PERIOD = 5.0
"""Seconds between looks whether others changed our rules; each costs one netlink question."""
NEWBORN = 0.02
"""Seconds that a new Service waits for its first slice before its refusal is written."""
RETRY = 2.0
"""Seconds before the first write is tried again."""
TRIGGER_TIME = "endpoints.kubernetes.io/last-change-trigger-time"
ZONE_LABEL = "topology.kubernetes.io/zone"


class ServiceProxy:
    """Keeps the backends (one an IP family) at what the informers say."""

    def __init__(
        self,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        backends: Sequence[Backend],
        *,
        node_name: str = "",
        served_here: Iterable[str] = (),
        health: Health | None = None,
        clock: Clock = SYSTEM,
        on_change: Callable[[str], None] | None = None,
        after_write: Callable[[dict[str, tuple[ServicePort, ...]]], Awaitable[None]] | None = None,
        on_repair: Callable[[], None] | None = None,
        on_taken: Callable[[core_v1.Service, Taken], None] | None = None,
        on_left_out: Callable[[core_v1.Service, str], None] | None = None,
        look: Callable[[], Listeners] = listening,
        min_period: float = 0,
    ) -> None:
        families = tuple(backend.family for backend in backends)
        metrics.begin(families)
        cost = next((backend.cost for backend in backends), PAIRS)
        self.table = ServiceTable(NodeView(node_name), families, frozenset(served_here), cost=cost)
        self._services, self._slices, self._backends = services, slices, backends
        self._left_out = LeftOut(self._report_left_out)
        self._writers = [self._writer(backend, clock) for backend in backends]
        self._health, self._clock, self._on_change = health or Health(clock), clock, on_change
        self._after_write, self._on_repair, self._min_period = after_write, on_repair, min_period
        self._on_taken, self._on_left_out, self._look = on_taken, on_left_out, look
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._triggers: list[tuple[str, datetime]] = []
        self._flows = FlowCleaner(lambda: self._ports, clock)
        self.started = asyncio.Event()
        services.subscribe(self._service_changed)
        slices.subscribe(self._slice_changed)

    def _writer(self, backend: Backend, clock: Clock) -> ServiceWriter:
        family = metrics.family_label(backend.family)

        def refused(key: str, why: str) -> None:
            self._left_out.add(key, family, f"the kernel refuses its {family} rules", why)

        def late(key: str, why: str) -> None:
            self._left_out.add(key, family, f"its {family} rules take too long to write", why)

        return ServiceWriter(backend, clock, refused, lambda key: self._left_out.remove(key, family), late)

    def _report_left_out(self, key: str, why: str) -> None:
        service = self.table.service(key)
        if service is not None and self._on_left_out is not None:
            self._on_left_out(service, why)

    def in_force(self, backend: Backend) -> dict[str, tuple[ServicePort, ...]]:
        """Return the Services that a backend has: all but those left out."""
        return next(writer.in_force for writer in self._writers if writer.backend is backend)

    @property
    def ports(self) -> dict[str, tuple[ServicePort, ...]]:
        """The desired state last written, by Service key."""
        return self._ports

    # -- changes in -----------------------------------------------------------------------------------------------
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

    def set_node(self, node: core_v1.Node) -> None:
        """Take in this node's zone, which topology hints speak of."""
        self.table.set_node(NodeView(node.metadata.name or "", node.metadata.labels.get(ZONE_LABEL, "")))
        if self.table.dirty:
            self._queue("")

    def set_elsewhere(self, address: str, present: bool) -> None:
        """Take in that an address is another node's own, or no longer."""
        self.table.set_elsewhere(address, present)
        if self.table.dirty:
            self._queue("")

    def set_own(self, addresses: frozenset[str]) -> None:
        """Take in this node's own addresses, at which its daemons keep their ports."""
        self.table.set_own(addresses)
        self._leave_taken_ports()
        if self.table.dirty:
            self._queue("")

    def _leave_taken_ports(self) -> None:
        """Leave ports of load balancers to programs of this node, and say so once."""
        if not self.table.balances_here:
            return
        for taken in self.table.set_listeners(self._look()):
            log.warning("Service %s is not served here: %s", taken.key, taken)
            service = self.table.service(taken.key)
            if service is not None and self._on_taken is not None:
                self._on_taken(service, taken)

    def _queue(self, key: str) -> None:
        if self._on_change is not None and key:
            self._on_change(key)
        if not self._wake.is_set():
            for backend in self._backends:
                metrics.LAST_QUEUED.labels(metrics.family_label(backend.family)).set(self._clock.now().timestamp())
            self._health.queued()
            self._wake.set()

    def _note_trigger(self, slice_: discovery_v1.EndpointSlice) -> None:
        text = slice_.metadata.annotations.get(TRIGGER_TIME)
        if text and self.started.is_set():
            try:
                self._triggers.append((slice_.address_type, parse_time(text)))
            except ValueError:
                log.debug("unreadable trigger time %r", text)

    # -- changes out ----------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Take over the kernel's rules once everything is known, then follow until cancelled."""
        await self._services.wait_synced()
        await self._slices.wait_synced()
        await self._start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flows.run(), name="deletion of stale flows")
            await self._follow()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            # One turn later all events of the same read are in: they make one delta.
            await asyncio.sleep(0)
            self._wake.clear()
            if self.table.only_newborn:
                await self._await_slices()
            await self._sync()
            if self._min_period:
                await self._clock.sleep(self._min_period)

    async def _await_slices(self) -> None:
        """Give a new Service's first slice a moment: one write then does for both.

        Nothing is lost meanwhile: an address of the service range without rules is refused as a whole.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NEWBORN):
                while self.table.only_newborn:
                    await self._wake.wait()
                    self._wake.clear()

    async def _start(self) -> None:
        self._leave_taken_ports()
        self._wake.clear()
        self._ports = await self._take_changes()
        reports.count_without_local((), self._ports.values())
        began = self._clock.monotonic()
        for writer in self._writers:
            # Nothing else may start before this is in force: the guard of route_localnet is among it.
            while True:
                started = self._clock.monotonic()
                try:
                    await writer.start(self._ports)
                    metrics.SYNC.labels(metrics.family_label(writer.backend.family)).observe(
                        self._clock.monotonic() - started
                    )
                    break
                except WriteError as error:
                    log.error("cannot write rules yet: %s", error)
                    await self._clock.sleep(RETRY)
        log.info("%d Services in force after %.3f s", len(self._ports), self._clock.monotonic() - began)
        self._done()
        if self._after_write is not None:
            await self._after_write(self._ports)
        self.started.set()

    async def _sync(self) -> None:
        triggers, self._triggers = self._triggers, []
        failed = False
        if self.table.balancer_dirty:
            self._leave_taken_ports()
        async with self._lock:
            changes = await self._take_changes()
            before = {key: self._ports.get(key, ()) for key in changes}
            changed, flows = await large_changes.made(changes, lambda: _differences(before, changes))
            reports.count_without_local((before[key] for key in changed), changed.values())
            for key, ports in changed.items():
                if ports:
                    self._ports[key] = ports
                else:
                    self._ports.pop(key, None)
            for writer in self._writers:
                backend, began = writer.backend, self._clock.monotonic()
                try:
                    if changed:
                        await writer.apply(changed)
                except WriteError as error:
                    failed = True
                    log.error("rules are behind: %s", error)
                took = self._clock.monotonic() - began
                metrics.SYNC.labels(metrics.family_label(backend.family)).observe(took)
                if changed:
                    log.info("IPv%d, %.3f s: %s", backend.family, took, reports.told(changed, backend.family))
        self._flows.hold(flows)
        if not failed:
            self._done()
        now = self._clock.now()
        for family, moment in triggers:
            metrics.LATENCY.labels(family).observe(max(0.0, (now - moment).total_seconds()))
        if changed and self._after_write is not None:
            await self._after_write(changed)

    async def _take_changes(self) -> dict[str, tuple[ServicePort, ...]]:
        changes = await self.table.take_changes()
        for key in changes:
            why = self.table.too_large.get(key)
            if why:
                self._left_out.add(key, LIMIT, why)
            else:
                self._left_out.remove(key, LIMIT)
        return changes

    def _done(self) -> None:
        self._flows.release()
        for backend in self._backends:
            metrics.LAST_SYNC.labels(metrics.family_label(backend.family)).set(self._clock.now().timestamp())
        if not self.table.dirty:
            metrics.SERVICES_PENDING.set(0)
            metrics.ENDPOINTS_PENDING.set(0)
        self._health.updated()

    async def verify_forever(self) -> None:
        """Look regularly whether others changed our rules, and repair them."""
        await self.started.wait()
        while True:
            await self._clock.sleep(CHECK_PERIOD)
            await self.verify()

    async def verify(self) -> bool:
        """Look once; return whether anything had to be repaired."""
        repaired = failed = False
        self._leave_taken_ports()
        self.table.try_left_out(self._clock.monotonic())
        if self.table.dirty:
            self._queue("")
        for writer in self._writers:
            backend = writer.backend
            try:
                async with self._lock if backend.starving else contextlib.nullcontext():
                    repaired = await backend.verify() or repaired
                changing = self._wake.is_set() or self._lock.locked()  # changes go first
                if writer.overdue or (writer.due and not changing):
                    async with self._lock:
                        await writer.retry()
            except WriteError as error:
                failed = True
                log.error("rules cannot be repaired yet: %s", error)
        if repaired and self._on_repair is not None:
            self._on_repair()
        if not failed and not self._wake.is_set():
            self._done()
        return repaired

    def exclusive(self) -> asyncio.Lock:
        """Return the lock under which alone a backend may be changed."""
        return self._lock


def _differences(
    before: Mapping[str, tuple[ServicePort, ...]], after: Mapping[str, tuple[ServicePort, ...]]
) -> tuple[dict[str, tuple[ServicePort, ...]], list[list[str]]]:
    """Return the Services whose desired state is another one, and the flows that become stale by that."""
    changed = {key: ports for key, ports in after.items() if ports != before[key]}
    return changed, [flow for key, ports in changed.items() for flow in conntrack.stale_flows(before[key], ports)]
