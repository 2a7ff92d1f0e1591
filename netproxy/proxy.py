"""The service proxy's loop: takes changes from the table and has the backends write them.

service_changes.py wakes it. All changes of the same iteration of the event loop, and those during the previous write, are one
delta. There is no minimum period unless one is configured. After a failed write the backend compares everything at the next
check.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from kube import cancellation
from kube.api import core_v1, discovery_v1
from kube.clock import SYSTEM, Clock
from kube.informer import Informer
from netproxy import conntrack, large_changes, listeners, metrics, reports
from netproxy.backend import Backend
from netproxy.balancer_ports import PortInUse
from netproxy.endpoints import NodeView
from netproxy.errors import WriteError
from netproxy.flow_cleaner import FlowCleaner
from netproxy.health import Health
from netproxy.model import ServicePort
from netproxy.port_checks import Find
from netproxy.service_changes import ServiceChanges
from netproxy.service_limits import PAIRS
from netproxy.service_table import ServiceTable
from netproxy.tasks import repeat
from netproxy.unserved_services import LIMIT, UnservedServices

log = logging.getLogger(__name__)

CHECK_PERIOD = 5.0
"""Seconds between checks whether others changed our rules; each costs one netlink query."""
FIRST_SLICE_TIMEOUT = 0.02
"""Seconds that a new Service waits for its first slice before its refusal is written."""
RETRY = 2.0
"""Seconds before the first write is retried."""


class ServiceProxy:
    """Keeps the backends (one an IP family) at the desired state.

    `on_written` is called when no change waits to be written.
    """

    def __init__(
        self,
        services: Informer[core_v1.Service],
        slices: Informer[discovery_v1.EndpointSlice],
        backends: Sequence[Backend],
        *,
        node_name: str = "",
        local_cluster_ips: Iterable[str] = (),
        health: Health | None = None,
        clock: Clock = SYSTEM,
        on_change: Callable[[str], None] | None = None,
        after_write: Callable[[dict[str, tuple[ServicePort, ...]]], Awaitable[None]] | None = None,
        on_written: Callable[[], None] | None = None,
        on_repair: Callable[[], None] | None = None,
        on_port_in_use: Callable[[core_v1.Service, PortInUse], None] | None = None,
        on_not_served: Callable[[core_v1.Service, str], None] | None = None,
        find_ports_in_use: Find = listeners.in_use,
        min_period: float = 0,
    ) -> None:
        families = tuple(backend.family for backend in backends)
        metrics.initialize(families)
        cost = next((backend.cost for backend in backends), PAIRS)
        self._health, self._clock = health or Health(clock), clock
        self.table = ServiceTable(NodeView(node_name), families, frozenset(local_cluster_ips), cost=cost)
        self.changes = ServiceChanges(
            self.table,
            services,
            slices,
            families,
            health=self._health,
            clock=clock,
            on_change=on_change,
            on_port_in_use=on_port_in_use,
            find_ports_in_use=find_ports_in_use,
        )
        self._services, self._slices, self._backends = services, slices, backends
        self._unserved = UnservedServices(self._report_not_served)
        self._writers = [self._unserved.writer(backend, clock) for backend in backends]
        self._after_write, self._on_repair, self._min_period = after_write, on_repair, min_period
        self._on_written, self._on_not_served = on_written, on_not_served
        self.write_lock = asyncio.Lock()
        """Protects changes of a backend."""
        self._ports: dict[str, tuple[ServicePort, ...]] = {}
        self._flows = FlowCleaner(lambda: self._ports, clock)
        self.started = asyncio.Event()

    def _report_not_served(self, key: str, why: str) -> None:
        service = self.table.service(key)
        if service is not None and self._on_not_served is not None:
            self._on_not_served(service, why)

    def in_force(self, backend: Backend) -> dict[str, tuple[ServicePort, ...]]:
        """Return the Services in a backend: all but those that it refused."""
        return next(writer.in_force for writer in self._writers if writer.backend is backend)

    @property
    def ports(self) -> dict[str, tuple[ServicePort, ...]]:
        """The desired state last written, by Service key."""
        return self._ports

    async def run(self) -> None:
        """Write all rules once everything is known, then follow changes until cancelled."""
        await self._services.wait_synced()
        await self._slices.wait_synced()
        await self._start()
        async with asyncio.TaskGroup() as group:
            cancellation.start(group, self._flows.run, "deletion of stale flows")
            await self._follow()

    async def _follow(self) -> None:
        while True:
            await self.changes.wake.wait()
            # One turn later all events of the same read are in: they make one delta.
            await asyncio.sleep(0)
            self.changes.wake.clear()
            if self.table.only_awaits_slices:
                await self._await_slices()
            await self._sync()
            if self._min_period:
                await self._clock.sleep(self._min_period)

    async def _await_slices(self) -> None:
        """Wait a moment for a new Service's first slice: one write is then enough for both.

        Nothing is lost meanwhile: an address of the service range without rules is refused as a whole.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_SLICE_TIMEOUT):
                while self.table.only_awaits_slices:
                    await self.changes.wake.wait()
                    self.changes.wake.clear()

    async def _start(self) -> None:
        await self.changes.port_checks.check_new()
        self.changes.wake.clear()
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
        self._record_success()
        if self._after_write is not None:
            await self._after_write(self._ports)
        self.changes.take_triggers()  # those of the first lists say nothing of this process
        self.started.set()

    async def _sync(self) -> None:
        triggers = self.changes.take_triggers()
        failed = False
        await self.changes.port_checks.check_new()
        async with self.write_lock:
            changes = await self._take_changes()
            before = {key: self._ports.get(key, ()) for key in changes}
            changed, flows = await large_changes.compute(before, changes, lambda: _differences(before, changes))
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
                    log.error("rules cannot be updated yet: %s", error)
                seconds = self._clock.monotonic() - began
                metrics.SYNC.labels(metrics.family_label(backend.family)).observe(seconds)
                if changed:
                    log.info("IPv%d, %.3f s: %s", backend.family, seconds, reports.describe(changed, backend.family))
        self._flows.add(flows)
        if not failed:
            self._record_success()
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
                self._unserved.add(key, LIMIT, why)
            else:
                self._unserved.remove(key, LIMIT)
        return changes

    def _record_success(self) -> None:
        self._flows.rules_written()
        for backend in self._backends:
            metrics.LAST_SYNC.labels(metrics.family_label(backend.family)).set(self._clock.now().timestamp())
        if not self.table.dirty:
            metrics.SERVICES_PENDING.set(0)
            metrics.ENDPOINTS_PENDING.set(0)
            if self._on_written is not None and not self.write_lock.locked():
                self._on_written()
        self._health.updated()

    async def write_last_changes(self) -> None:
        """Write what has changed, once the proxy has ended."""
        if self.started.is_set() and self.table.dirty:
            await self._sync()

    async def verify_forever(self) -> None:
        """Revert changes of the rules by other programs each `CHECK_PERIOD`, until cancelled."""
        await self.started.wait()
        await repeat(self.verify, CHECK_PERIOD, self._clock, "rules cannot be repaired yet")

    async def verify(self) -> bool:
        """Revert changes of the rules by other programs; return whether there were any."""
        repaired = failed = False
        await self.changes.port_checks.check_all()
        self.table.retry_unserved(self._clock.monotonic())
        self.changes.wake_if_dirty()
        for writer in self._writers:
            backend = writer.backend
            try:
                async with self.write_lock if backend.verify_needs_lock else contextlib.nullcontext():
                    repaired = await backend.verify() or repaired
                changing = self.changes.wake.is_set() or self.write_lock.locked()  # changes go first
                if writer.retry_overdue or (writer.retry_due and not changing):
                    async with self.write_lock:
                        await writer.retry()
            except WriteError as error:
                failed = True
                log.error("rules cannot be repaired yet: %s", error)
        if self._after_write is not None:
            await self._after_write({})  # ports that another process had are opened when it is gone
        if repaired and self._on_repair is not None:
            self._on_repair()
        if not failed and not self.changes.wake.is_set():
            self._record_success()
        return repaired


def _differences(
    before: Mapping[str, tuple[ServicePort, ...]], after: Mapping[str, tuple[ServicePort, ...]]
) -> tuple[dict[str, tuple[ServicePort, ...]], list[conntrack.StaleFlows]]:
    """Return the Services whose desired state changed, and the flows that become stale."""
    changed = {key: ports for key, ports in after.items() if ports != before[key]}
    return changed, [flow for key, ports in changed.items() for flow in conntrack.stale_flows(before[key], ports)]
