"""Cluster addresses: the ranges they come from and who has which.

The ranges are the configured ones and those of ServiceCIDR objects; one that is being deleted gives no more. An address is
also claimed in the store, as an IPAddress object named after it (networking.k8s.io/v1, KEP-1880): creating one is atomic
across servers, while the pools here keep requests of this server apart.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
from collections.abc import Iterable
from datetime import timedelta

from control.event_loop.pacing import TimeSlice
from control.registry.core.service.allocations import HEADLESS, ServiceAllocations, family_of, owner_of, refuse
from control.registry.core.service.families import choose_families
from control.registry.core.service.pools import AlreadyAllocated, Exhausted, OutOfRange, Pool, address_offset
from control.registry.core.service.stored import ServiceAllocation, record_of
from control.registry.strategy_context import Context, ReleaseContext
from kube.bounded_cache import bounded_cache
from kube.clock import parse_time
from kube.errors import StatusError, internal, invalid_value
from kube.ip_addresses import canonical, lenient
from kube.json_object import Object

log = logging.getLogger(__name__)
MANAGED_BY = "ipallocator.k8s.io"
MANAGED_BY_LABEL = "ipaddress.kubernetes.io/managed-by"
_RECORDS = ("networking.k8s.io", "v1", "ipaddresses")
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Addresses:
    """Hands out addresses; the first configured range's family is the default."""

    def __init__(self, ranges: Iterable[str]) -> None:
        self.configured = [_network(text) for text in ranges]
        self.default_family = f"IPv{self.configured[0].version}"
        self._owners: dict[str, dict[int, str]] = {"IPv4": {}, "IPv6": {}}
        self._pools: dict[Network, Pool] = {}
        self.networks: list[Network] = []
        self._use(self.configured)

    def clear(self) -> None:
        """Forget all owners."""
        for owners in self._owners.values():
            owners.clear()

    def note(self, allocation: ServiceAllocation) -> None:
        """Record the addresses of a Service."""
        for family, number in allocation.numbers:
            self._owners[family].setdefault(number, allocation.owner)

    async def forget_orphans(self, known: set[str], context: ReleaseContext, age: timedelta) -> None:
        """Delete the records older than `age` that a crash between claim and Service has left."""
        time_slice = TimeSlice()
        for entry in context.entries(*_RECORDS):  # as of now: the records of later allocations are none of these
            await time_slice.step(len(entry.data))
            metadata = record_of(entry).metadata
            if (metadata.labels or {}).get(MANAGED_BY_LABEL) != MANAGED_BY or metadata.name in known:
                continue
            if not age or context.now - parse_time(metadata.creation_timestamp or "") > age:
                await context.delete(*_RECORDS, "", metadata.name)

    def follow(self, context: ReleaseContext) -> None:
        """Take the ranges as they are now."""
        self._use(self._ranges(context))

    def _ranges(self, context: ReleaseContext) -> list[Network]:
        """Return the configured ranges and those of ServiceCIDR objects; what is going away is left out."""
        going, added = set(), []
        for obj in context.objects("networking.k8s.io", "v1", "servicecidrs"):
            for text in (obj.get("spec") or {}).get("cidrs") or ():
                network = _network(text)
                if (obj.get("metadata") or {}).get("deletionTimestamp"):
                    going.add(network)
                else:
                    added.append(network)
        found = dict.fromkeys([*self.configured, *added])
        return [network for network in found if network not in going] or self.configured

    def _use(self, networks: list[Network]) -> None:
        if networks == self.networks:
            return
        self.networks = networks
        for network in networks:
            if network not in self._pools:
                self._pools[network] = _address_pool(network, self._owners[f"IPv{network.version}"])

    def _family(self, family: str) -> list[Pool]:
        return [self._pools[network] for network in self.networks if f"IPv{network.version}" == family]

    def choose_families(self, obj: Object, old: Object | None) -> None:
        """Fill in a Service's IP families; raises 422 for families and addresses that are invalid."""
        choose_families(obj, old, {f"IPv{network.version}" for network in self.networks}, self.default_family)

    async def assign(
        self, obj: Object, allocated: set[str], before: Object, allocations: ServiceAllocations, context: Context
    ) -> None:
        spec = obj["spec"]
        if spec.get("type") == "ExternalName":
            return
        if spec.get("clusterIP") == HEADLESS:
            spec["clusterIPs"] = [HEADLESS]
            return
        asked = {family_of(ip): ip for ip in spec.get("clusterIPs") or () if ip}
        primary = before.get("clusterIP")
        if primary and before.get("type") != "ExternalName" and spec.get("clusterIP") != primary:
            return  # validation refuses the change
        found = []
        for family in spec["ipFamilies"]:
            ip = asked.get(family)
            if ip is None:
                ip = await self._allocate_any(obj, family, allocations, context)
            elif canonical(ip) not in allocated:
                await self._allocate(obj, ip, allocations, context)
            found.append(ip)
        spec["clusterIPs"], spec["clusterIP"] = found, found[0]

    async def _allocate(self, obj: Object, ip: str, allocations: ServiceAllocations, context: Context) -> None:
        plain, why = canonical(ip), ""
        number = int(lenient(ip))
        pool = next((p for p in self._family(family_of(ip)) if number in p), None)
        try:
            if pool is None:
                raise OutOfRange
            pool.claim(number, allocations.owner)
            allocations.addresses.append(plain)
            await self._record(obj, plain, allocations, context)
        except AlreadyAllocated:
            why = "provided IP is already allocated"
        except OutOfRange:
            shown = ", ".join(str(n) for n in self.networks if f"IPv{n.version}" == family_of(ip)) or self.networks[0]
            why = f"the provided IP ({ip}) is not in the valid range. The range of valid IPs is {shown}"
        if why:
            detail = f"failed to allocate IP {ip}: {why}"
            raise refuse(obj, invalid_value("spec.clusterIPs", obj["spec"]["clusterIPs"], detail))

    async def _allocate_any(self, obj: Object, family: str, allocations: ServiceAllocations, context: Context) -> str:
        for pool in self._family(family):
            while True:
                try:
                    number = pool.claim_any(allocations.owner)
                except Exhausted:
                    break
                ip = str(ipaddress.IPv4Address(number) if family == "IPv4" else ipaddress.IPv6Address(number))
                try:
                    await self._record(obj, ip, allocations, context)
                except AlreadyAllocated:
                    # Another server has it: it stays claimed here under nobody's name, so it is not retried.
                    pool.free(number, allocations.owner)
                    pool.note(number, "another server")
                    continue
                except BaseException:
                    pool.free(number, allocations.owner)
                    raise
                allocations.addresses.append(ip)
                return ip
        raise internal("failed to allocate a serviceIP: range is full")

    async def _record(self, obj: Object, ip: str, allocations: ServiceAllocations, context: Context) -> None:
        """Claim an address in the store; raises AlreadyAllocated if it is another's."""
        if context.dry_run:
            return
        try:
            await context.create(_record_of(owner_of(obj), ip))
        except StatusError as error:
            if error.already_exists:
                raise AlreadyAllocated from error
            raise
        allocations.records.append(ip)

    async def restore_records(self, services: Iterable[ServiceAllocation], context: Context) -> None:
        """Record the addresses of stored Services that have no record; log those that are recorded for another one."""
        time_slice, records = TimeSlice(), dict[str, Object | None]()
        for entry in context.entries(*_RECORDS):
            await time_slice.step(len(entry.data))
            record = record_of(entry)
            records[record.metadata.name] = record.spec.parent_ref
        for service in services:
            await time_slice.step()
            for ip in service.addresses:
                wanted = _record_of(service.owner, ip)
                parent = records.get(wanted["metadata"]["name"])
                if parent is None:
                    log.warning("the address %s of Service %s was not recorded as allocated", ip, service.owner)
                    with contextlib.suppress(StatusError):
                        await context.create(wanted)
                elif parent != wanted["spec"]["parentRef"]:
                    log.error("the address %s of Service %s is recorded for %s", ip, service.owner, parent)

    async def free(self, allocations: ServiceAllocations, context: ReleaseContext) -> None:
        for ip in allocations.records:
            with contextlib.suppress(StatusError):
                if not context.dry_run:
                    await context.delete("networking.k8s.io", "v1", "ipaddresses", "", ip)
        # The address is free only when its record is gone.
        for ip in allocations.addresses:
            owners, number = self._owners[family_of(ip)], int(lenient(ip))
            if owners.get(number) == allocations.owner:
                del owners[number]


def _record_of(owner: str, ip: str) -> Object:
    namespace, _, name = owner.partition("/")
    labels = {"ipaddress.kubernetes.io/ip-family": family_of(ip), MANAGED_BY_LABEL: MANAGED_BY}
    parent = {"resource": "services", "namespace": namespace, "name": name}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "IPAddress",
        "metadata": {"name": canonical(ip), "labels": labels},
        "spec": {"parentRef": parent},
    }


@bounded_cache(256)
def _network(text: str) -> Network:
    return ipaddress.ip_network(text)


def _address_pool(net: Network, owners: dict[int, str]) -> Pool:
    """All addresses of a range but the network's own and, in IPv4, the broadcast address."""
    size = net.num_addresses - (2 if net.version == 4 else 1)
    # Beyond 2^16 an IPv6 range gains nothing.
    size = min(size, 2**16 - 1) if net.version == 6 else size
    return Pool(int(net.network_address) + 1, size, address_offset(size), owners)
