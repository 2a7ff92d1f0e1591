"""Allocates cluster addresses, node ports and health check ports to Services.

The state is the stored Services: it is taken from them when the first Service is written, and kept by this server's own
writes from then on; where servers share a store it is taken again for each write, from what was read once for each change of
a Service (stored.py), and what is under way here is added. A claim is made before anything is awaited and taken back if the
write fails, so concurrent creates cannot collide. What depends on the object alone is done before the first claim, where the
request's limit of steps holds. Between servers the store decides: addresses are records in it in any case, ports are entered
in a ledger where it is shared.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from control.event_loop import offload
from control.registry.core.service.addresses import Addresses
from control.registry.core.service.allocations import ServiceAllocations, owner_of
from control.registry.core.service.node_ports import NodePorts
from control.registry.core.service.port_ledger import PortLedger
from control.registry.core.service.stored import ServiceAllocation, StoredServices, allocation_of_spec
from control.registry.strategy_context import Context, Finish, Outcome, ReleaseContext
from kube import step_limit
from kube.json_object import Object, copy_json

ELSEWHERE = "another server"
ORPHAN_AFTER = timedelta(seconds=60)
"""The age from which on an address's record without a Service is removed; a younger one may belong to a pending create."""


class ServiceAllocator:
    """Hands out addresses of `ranges` (CIDRs, the first one's family is the default) and ports of `node_ports`."""

    def __init__(self, ranges: Iterable[str], node_ports: range, *, shared: bool = False) -> None:
        self.addresses, self.ports = Addresses(ranges), NodePorts(node_ports)
        self._shared, self._loaded = shared, False
        self._ledger = PortLedger(node_ports)
        self._pending: list[ServiceAllocations] = []
        self._stored = StoredServices()

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish:
        """Fill in a Service's addresses and ports; raises StatusError if something is taken or none is left."""
        with step_limit.whole():
            await self._load(context)
            self.addresses.follow(context)
        await offload.run(context.user.name, context.size, self.addresses.choose_families, obj, old)
        step_limit.complete()
        allocations, before = ServiceAllocations(owner_of(obj)), (old or {}).get("spec") or {}
        held_addresses, held_ports = allocation_of_spec(before)
        self._pending.append(allocations)
        try:
            await self.addresses.assign(obj, set(held_addresses), before, allocations, context)
            if self._shared and not context.dry_run:
                await self._assign_recorded_ports(obj, set(held_ports), allocations, context)
            else:
                await self.ports.assign(obj, set(held_ports), allocations)
        except BaseException:
            self._pending.remove(allocations)
            await self._free(allocations, context)
            raise

        async def finish(outcome: Outcome) -> None:
            self._pending.remove(allocations)
            if outcome is Outcome.NOT_STORED:
                await self._free(allocations, context)
            elif outcome is Outcome.STORED and old is not None:
                addresses, ports = allocation_of_spec(obj.get("spec") or {})
                gone = list(set(held_addresses).difference(addresses))
                given = list(set(held_ports).difference(ports))
                left = ServiceAllocations(allocations.owner, gone, given, gone, given)
                await self._free(left, context)

        return finish

    async def release(self, obj: Object, context: ReleaseContext) -> None:
        """Free the addresses and node ports of a deleted Service."""
        await self._load(context)
        addresses, ports = allocation_of_spec(obj.get("spec") or {})
        await self._free(ServiceAllocations(owner_of(obj), addresses, ports, addresses, ports), context)

    async def _assign_recorded_ports(
        self, obj: Object, allocated: set[int], allocations: ServiceAllocations, context: Context
    ) -> None:
        """Assign ports and enter them in the ledger; again on what another server left where it was quicker."""
        asked = await offload.run(context.user.name, context.size, copy_json, obj["spec"])
        while True:
            found = await self._ledger.read(context.store)
            used = set(self.ports.ports.owners())
            taken = found.ports if found else frozenset(used)
            lost = self._ledger.leaked(taken, used, context.now)
            for port in taken - lost:
                self.ports.ports.note(port, ELSEWHERE)
            await self.ports.assign(obj, allocated, allocations)
            if not allocations.ports or await self._ledger.write(
                context.store, (taken - lost) | set(allocations.ports), found
            ):
                allocations.port_records += allocations.ports
                return
            self.ports.free(allocations)
            allocations.ports.clear()
            obj["spec"] = await offload.run(context.user.name, context.size, copy_json, asked)
            await self._load(context)

    async def _load(self, context: ReleaseContext) -> None:
        if self._loaded and not self._shared:
            return
        await self._stored.read(context)
        if self._shared:
            await context.current()
        elif self._loaded:
            return  # by a write that came meanwhile
        first, self._loaded = not self._loaded, True
        known = self._note_allocated(context)
        if first:
            await self.addresses.forget_orphans(known, context, ORPHAN_AFTER if self._shared else timedelta())
        self._forget_stored()

    async def repair(self, context: Context) -> None:
        """Compare what is handed out with the stored Services, and mend both ways.

        What a write of unknown outcome left is given back, what a Service has without its record is recorded. Upstream:
        pkg/registry/core/service/ipallocator/controller/repairip.go.
        """
        await self._stored.read(context)
        await context.current()
        known = self._note_allocated(context)
        await self.addresses.forget_orphans(known, context, ORPHAN_AFTER)
        await self._stored.read(context)
        await self.addresses.restore_records(self._stored.all(context), context)
        self._forget_stored()

    def _forget_stored(self) -> None:
        """A server alone reads the stored Services once in a while only; one that shares them does at each write."""
        if not self._shared:
            self._stored.forget()

    def _note_allocated(self, context: ReleaseContext) -> set[str]:
        """Note what stored Services and writes under way have, and nothing else; return the stored addresses."""
        known: set[str] = set()
        self.addresses.clear()
        self.ports.clear()
        pending = [
            ServiceAllocation(allocations.owner, allocations.addresses, allocations.ports)
            for allocations in self._pending
        ]
        for allocation in self._stored.all(context) + pending:
            known.update(allocation.addresses)
            self.addresses.note(allocation)
            for port in allocation.ports:
                self.ports.ports.note(port, allocation.owner)
        return known

    async def _free(self, allocations: ServiceAllocations, context: ReleaseContext) -> None:
        """Make addresses and ports allocatable again, and delete their records (IPAddress objects, the ledger of ports)."""
        self.ports.free(allocations)
        await self.addresses.free(allocations, context)
        if self._shared and not context.dry_run:
            await self._ledger.release(context.store, allocations.port_records)
