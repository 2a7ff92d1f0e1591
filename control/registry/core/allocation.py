"""What a Service is given: cluster addresses, node ports, a health check port.

The state is the stored Services: it is read from them when the first Service is written, and kept by this server's own
writes from then on; where servers share a store it is read anew for each write, and what is under way here is added. A
claim is made before anything is awaited and taken back if the write fails, so concurrent creates cannot collide.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.registry.core.addresses import HEADLESS, Addresses
from control.registry.core.claims import Claims, owner_of
from control.registry.core.node_ports import NodePorts
from control.registry.strategy import Context, Finish, Object


class ServiceAllocator:
    """Hands out addresses of `ranges` (CIDRs, the first one's family is the default) and ports of `node_ports`."""

    def __init__(self, ranges: Iterable[str], node_ports: range, shared: bool = False) -> None:
        self.addresses, self.ports = Addresses(ranges), NodePorts(node_ports)
        self._shared, self._loaded = shared, False
        self._pending: list[Claims] = []

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish:
        """Fill in a Service's addresses and ports; raises StatusError where something is taken or none is left."""
        await self._load(context)
        self.addresses.follow(context)
        claims, before = Claims(owner_of(obj)), (old or {}).get("spec") or {}
        held_addresses, held_ports = _held(before)
        self._pending.append(claims)
        try:
            self.addresses.choose_families(obj["spec"])
            await self.addresses.assign(obj, set(held_addresses), before, claims, context)
            self.ports.assign(obj, set(held_ports), claims)
        except BaseException:
            self._pending.remove(claims)
            await self._give_back(claims, context)
            raise

        async def finish(stored: bool) -> None:
            self._pending.remove(claims)
            if not stored:
                await self._give_back(claims, context)
            elif old is not None:
                addresses, ports = _held(obj.get("spec") or {})
                gone = [a for a in held_addresses if a not in addresses]
                left = Claims(claims.owner, gone, [p for p in held_ports if p not in ports], gone)
                await self._give_back(left, context)

        return finish

    async def release(self, obj: Object, context: Context) -> None:
        """Take back everything that a deleted Service had."""
        await self._load(context)
        addresses, ports = _held(obj.get("spec") or {})
        await self._give_back(Claims(owner_of(obj), addresses, ports, addresses), context)

    async def _load(self, context: Context) -> None:
        if self._loaded and not self._shared:
            return
        first, self._loaded = not self._loaded, True
        known: set[str] = set()
        self.addresses.clear()
        self.ports.clear()
        for service in context.objects("", "v1", "services"):
            addresses, ports = _held(service.get("spec") or {})
            known.update(addresses)
            self._note(owner_of(service), addresses, ports)
        for claims in self._pending:
            self._note(claims.owner, claims.addresses, claims.ports)
        if first:
            await self.addresses.forget_orphans(known, context)

    def _note(self, owner: str, addresses: list[str], ports: list[int]) -> None:
        for address in addresses:
            self.addresses.note(address, owner)
        for port in ports:
            self.ports.ports.note(port, owner)

    async def _give_back(self, claims: Claims, context: Context) -> None:
        self.ports.give_back(claims)
        await self.addresses.give_back(claims, context)


def _held(spec: Object) -> tuple[list[str], list[int]]:
    """Return the addresses and ports that a stored Service has."""
    if spec.get("type") == "ExternalName":
        return [], []
    ips = spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else [])
    addresses = [ip for ip in ips if ip and ip != HEADLESS]
    ports = [p["nodePort"] for p in spec.get("ports") or () if p.get("nodePort")]
    if spec.get("healthCheckNodePort"):
        ports.append(spec["healthCheckNodePort"])
    return addresses, list(dict.fromkeys(ports))
