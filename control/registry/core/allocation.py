"""What a Service is given: cluster addresses, node ports, a health check port.

The state is the stored Services: it is read from them when the first Service is written, and kept by this server's own
writes from then on. A claim is made before anything is awaited and taken back if the write fails, so concurrent creates
cannot collide. Addresses are also claimed in the store, as IPAddress objects named after the address (networking.k8s.io/v1,
KEP-1880): creating one is atomic across servers.
"""

from __future__ import annotations

import contextlib
import functools
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from control.registry.core.pools import Exhausted, OutOfRange, Pool, Taken, address_offset, port_offset
from control.registry.core.service_defaults import needs_health_check_port, needs_node_port
from control.registry.strategy import Context, Finish, Object
from kube.errors import FieldError, StatusError, internal, invalid, invalid_value

HEADLESS = "None"
_MANAGED_BY = "ipallocator.k8s.io"


def family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


@dataclass(slots=True)
class _Claims:
    """What one write has taken, so that it can be given back."""

    owner: str
    addresses: list[str] = field(default_factory=list)
    ports: list[int] = field(default_factory=list)
    records: list[str] = field(default_factory=list)


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ServiceAllocator:
    """Hands out addresses of `ranges` (CIDRs, the first one's family is the default) and ports of `node_ports`.

    ServiceCIDR objects add ranges while the server runs, and one that is being deleted gives no more addresses.
    """

    def __init__(self, ranges: Iterable[str], node_ports: range) -> None:
        self.configured = [_network(text) for text in ranges]
        self.default_family = f"IPv{self.configured[0].version}"
        self._owners: dict[str, dict[int, str]] = {"IPv4": {}, "IPv6": {}}
        self._pools: dict[Network, Pool] = {}
        self.networks: list[Network] = []
        self._use(self.configured)
        self.node_ports = node_ports
        self.ports = Pool(node_ports.start, len(node_ports), port_offset(len(node_ports)))
        self._loaded = False

    async def allocate(self, obj: Object, old: Object | None, context: Context) -> Finish:
        """Fill in a Service's addresses and ports; raises StatusError where something is taken or none is left."""
        await self._load(context)
        self._use(self._ranges(context))
        metadata = obj.get("metadata") or {}
        claims = _Claims(f"{metadata.get('namespace', '')}/{metadata.get('name', '')}")
        before = (old or {}).get("spec") or {}
        try:
            self._choose_families(obj["spec"])
            await self._assign_addresses(obj, before, claims, context)
            self._assign_ports(obj, before, claims)
        except BaseException:
            await self._give_back(claims, context)
            raise

        async def finish(stored: bool) -> None:
            if not stored:
                await self._give_back(claims, context)
            elif old is not None:
                kept, held = _held(obj.get("spec") or {}), _held(before)
                gone = [a for a in held[0] if a not in kept[0]]
                left = _Claims(claims.owner, gone, [p for p in held[1] if p not in kept[1]], gone)
                await self._give_back(left, context)

        return finish

    async def release(self, obj: Object, context: Context) -> None:
        """Take back everything that a deleted Service had."""
        await self._load(context)
        metadata = obj.get("metadata") or {}
        addresses, ports = _held(obj.get("spec") or {})
        owner = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
        await self._give_back(_Claims(owner, addresses, ports, addresses), context)

    async def _load(self, context: Context) -> None:
        if self._loaded:
            return
        self._loaded = True
        known = set()
        for service in context.objects("", "v1", "services"):
            metadata = service.get("metadata") or {}
            addresses, ports = _held(service.get("spec") or {})
            owner = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
            for address in addresses:
                known.add(address)
                self._owners[family_of(address)].setdefault(int(ipaddress.ip_address(address)), owner)
            for port in ports:
                self.ports.note(port, owner)
        # A crash between the claim and the Service leaves an IPAddress without owner.
        for record in list(context.objects("networking.k8s.io", "v1", "ipaddresses")):
            metadata = record.get("metadata") or {}
            managed = (metadata.get("labels") or {}).get("ipaddress.kubernetes.io/managed-by") == _MANAGED_BY
            if managed and metadata.get("name") not in known:
                await context.delete("networking.k8s.io", "v1", "ipaddresses", "", metadata.get("name", ""))

    # -- ranges ---------------------------------------------------------------------------------------------------
    def _ranges(self, context: Context) -> list[Network]:
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

    # -- addresses ------------------------------------------------------------------------------------------------
    def _choose_families(self, spec: Object) -> None:
        """Fill in ipFamilyPolicy and ipFamilies from what is asked for and what the cluster has."""
        if spec.get("type") == "ExternalName":
            return
        if spec.get("clusterIP") and not spec.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]
        elif spec.get("clusterIPs") and not spec.get("clusterIP"):
            spec["clusterIP"] = spec["clusterIPs"][0]
        asked = [ip for ip in spec.get("clusterIPs") or () if ip and ip != HEADLESS]
        headless = spec.get("clusterIP") == HEADLESS
        families: list[str] = list(spec.get("ipFamilies") or [family_of(ip) for ip in asked])
        free = headless and not spec.get("selector")
        if not spec.get("ipFamilyPolicy"):
            dual = free or len(families) > 1
            spec["ipFamilyPolicy"] = "RequireDualStack" if dual else "SingleStack"
        if not families:
            families = [self.default_family]
        other = "IPv6" if families[0] == "IPv4" else "IPv4"
        wants_two = spec["ipFamilyPolicy"] != "SingleStack"
        if wants_two and len(families) == 1 and (free or self._family(other)):
            families.append(other)
        spec["ipFamilies"] = families

    async def _assign_addresses(self, obj: Object, before: Object, claims: _Claims, context: Context) -> None:
        spec = obj["spec"]
        if spec.get("type") == "ExternalName":
            return
        if spec.get("clusterIP") == HEADLESS:
            spec["clusterIPs"] = [HEADLESS]
            return
        self._check_families(obj)
        asked = {family_of(ip): ip for ip in spec.get("clusterIPs") or () if ip}
        held, primary = set(_held(before)[0]), before.get("clusterIP")
        if primary and before.get("type") != "ExternalName" and spec.get("clusterIP") != primary:
            return  # validation refuses the change
        found = []
        for family in spec["ipFamilies"]:
            ip = asked.get(family)
            if ip is None:
                ip = await self._claim_any(obj, family, claims, context)
            elif ip not in held:
                await self._claim(obj, ip, claims, context)
            found.append(ip)
        spec["clusterIPs"], spec["clusterIP"] = found, found[0]

    def _check_families(self, obj: Object) -> None:
        spec = obj["spec"]
        policy, families = spec.get("ipFamilyPolicy"), spec["ipFamilies"]
        if policy == "RequireDualStack" and not (self._family("IPv4") and self._family("IPv6")):
            detail = "this cluster is not configured for dual-stack services"
            raise _refuse(obj, invalid_value("spec.ipFamilyPolicy", policy, detail))
        for index, family in enumerate(families):
            if not self._family(family):
                detail = "not configured on this cluster"
                raise _refuse(obj, invalid_value(f"spec.ipFamilies[{index}]", family, detail))

    async def _claim(self, obj: Object, ip: str, claims: _Claims, context: Context) -> None:
        try:
            number = int(ipaddress.ip_address(ip))
        except ValueError:
            return  # validation tells what is wrong with it
        why = ""
        pool = next((p for p in self._family(family_of(ip)) if number in p), None)
        try:
            if pool is None:
                raise OutOfRange
            pool.claim(number, claims.owner)
            claims.addresses.append(ip)
            await self._record(obj, ip, claims, context)
        except Taken:
            why = "provided IP is already allocated"
        except OutOfRange:
            shown = ", ".join(str(n) for n in self.networks if f"IPv{n.version}" == family_of(ip)) or self.networks[0]
            why = f"the provided IP ({ip}) is not in the valid range. The range of valid IPs is {shown}"
        if why:
            detail = f"failed to allocate IP {ip}: {why}"
            raise _refuse(obj, invalid_value("spec.clusterIPs", obj["spec"]["clusterIPs"], detail))

    async def _claim_any(self, obj: Object, family: str, claims: _Claims, context: Context) -> str:
        for pool in self._family(family):
            while True:
                try:
                    number = pool.claim_any(claims.owner)
                except Exhausted:
                    break
                ip = str(ipaddress.IPv4Address(number) if family == "IPv4" else ipaddress.IPv6Address(number))
                try:
                    await self._record(obj, ip, claims, context)
                except Taken:
                    # Another server has it: it stays claimed here under nobody's name, so it is not tried again.
                    pool.free(number, claims.owner)
                    pool.note(number, "another server")
                    continue
                except BaseException:
                    pool.free(number, claims.owner)
                    raise
                claims.addresses.append(ip)
                return ip
        raise internal("failed to allocate a serviceIP: range is full")

    async def _record(self, obj: Object, ip: str, claims: _Claims, context: Context) -> None:
        """Claim an address in the store; raises Taken where it is another's."""
        if context.dry_run:
            return
        metadata = obj.get("metadata") or {}
        labels = {
            "ipaddress.kubernetes.io/ip-family": family_of(ip),
            "ipaddress.kubernetes.io/managed-by": _MANAGED_BY,
        }
        parent = {"resource": "services", "namespace": metadata.get("namespace", ""), "name": metadata.get("name", "")}
        record = {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "IPAddress",
            "metadata": {"name": ip, "labels": labels},
            "spec": {"parentRef": parent},
        }
        try:
            await context.create(record)
        except StatusError as error:
            if error.already_exists:
                raise Taken from error
            raise
        claims.records.append(ip)

    # -- ports ----------------------------------------------------------------------------------------------------
    def _assign_ports(self, obj: Object, before: Object, claims: _Claims) -> None:
        spec = obj["spec"]
        held = set(_held(before)[1])
        if needs_node_port(spec):
            self._assign_node_ports(obj, held, claims)
        if needs_health_check_port(spec):
            port = spec.get("healthCheckNodePort")
            try:
                if not port:
                    spec["healthCheckNodePort"] = self._any_port(claims)
                elif port not in held:
                    self.ports.claim(port, claims.owner)
                    claims.ports.append(port)
            except (Taken, OutOfRange) as error:
                why = self._why(error)
                raise internal(f"failed to allocate requested HealthCheck NodePort {port}: {why}") from None

    def _assign_node_ports(self, obj: Object, held: set[int], claims: _Claims) -> None:
        # Ports that differ in protocol alone (DNS over UDP and TCP) share one node port.
        shared: dict[Any, int] = {}
        mine: set[tuple[int, Any]] = set()
        ports = obj["spec"].get("ports") or []
        for index, port in enumerate(ports):
            number = port.get("nodePort")
            if number:
                pair = (number, port.get("protocol"))
                if number not in held and (number not in claims.ports or pair in mine):
                    try:
                        self.ports.claim(number, claims.owner)
                        claims.ports.append(number)
                    except (Taken, OutOfRange) as error:
                        path = f"spec.ports[{index}].nodePort"
                        raise _refuse(obj, invalid_value(path, number, self._why(error))) from None
                mine.add(pair)
                shared.setdefault(port.get("port"), number)
        for port in ports:
            if not port.get("nodePort"):
                number = shared.get(port.get("port"))
                if number is None or (number, port.get("protocol")) in mine:
                    number = self._any_port(claims)
                    shared.setdefault(port.get("port"), number)
                mine.add((number, port.get("protocol")))
                port["nodePort"] = number

    def _any_port(self, claims: _Claims) -> int:
        try:
            number = self.ports.claim_any(claims.owner)
        except Exhausted:
            raise internal("failed to allocate a nodePort: range is full") from None
        claims.ports.append(number)
        return number

    def _why(self, error: Exception) -> str:
        if isinstance(error, Taken):
            return "provided port is already allocated"
        shown = f"{self.node_ports.start}-{self.node_ports.stop - 1}"
        return f"provided port is not in the valid range. The range of valid ports is {shown}"

    # -- giving back ----------------------------------------------------------------------------------------------
    async def _give_back(self, claims: _Claims, context: Context) -> None:
        for port in claims.ports:
            self.ports.free(port, claims.owner)
        for ip in claims.records:
            with contextlib.suppress(StatusError):
                if not context.dry_run:
                    await context.delete("networking.k8s.io", "v1", "ipaddresses", "", ip)
        # The address is free only when its record is gone.
        for ip in claims.addresses:
            owners, number = self._owners[family_of(ip)], int(ipaddress.ip_address(ip))
            if owners.get(number) == claims.owner:
                del owners[number]


@functools.lru_cache(256)
def _network(text: str) -> Network:
    return ipaddress.ip_network(text)


def _address_pool(net: Network, owners: dict[int, str]) -> Pool:
    """All addresses of a range but the network's own and, in IPv4, the broadcast address."""
    size = net.num_addresses - (2 if net.version == 4 else 1)
    # Beyond 2^16 an IPv6 range gains nothing.
    size = min(size, 2**16 - 1) if net.version == 6 else size
    return Pool(int(net.network_address) + 1, size, address_offset(size), owners)


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


def _refuse(obj: Object, error: FieldError) -> StatusError:
    return invalid("", "Service", (obj.get("metadata") or {}).get("name", ""), [error])
