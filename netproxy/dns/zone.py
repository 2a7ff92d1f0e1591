"""What the cluster's zone answers to a question: the Kubernetes DNS specification 1.1.0. No I/O.

Nothing is built ahead: a name says by its own form which Service it is about, so the answer is computed from that
Service and its slices when it is first asked for, and the server keeps its bytes until that Service changes (`about`).
Memory and the cost of a change stay the same however many Services there are.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kube.api import core_v1
from netproxy.dns import wire
from netproxy.dns.endpoints import BOTH, FAMILIES, Host, headless, unique
from netproxy.dns.wire import Record

SPEC_VERSION = "1.1.0"
TYPES = frozenset((wire.A, wire.NS, wire.CNAME, wire.SOA, wire.PTR, wire.TXT, wire.AAAA, wire.SRV, wire.ANY))
"""What the zone tells apart: it answers the same to all other types."""
ROOM = 65535
"""Bytes of the longest answer, over TCP."""
SRV_BYTES = 20
"""Of an SRV record, beside the text of its target."""
WEIGHTS = 101
"""SRV records that are counted for their weight, a share of 100 that is 1 at least."""


class Directory(Protocol):
    """The cluster's objects as the zone looks them up."""

    def service(self, key: str) -> core_v1.Service | None: ...
    def hosts(self, key: str, families: Sequence[str] = BOTH, label: str | None = None) -> Iterator[Host]:
        """Go through the ready endpoints of a Service, those with a label where one is given."""

    def ends(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        """Go through the ports with these labels of SRV names (None: any) of the ready endpoints of a Service."""

    def numbers(self, service: core_v1.Service, port: str | None, protocol: str | None) -> Iterable[int]:
        """Go through the numbers of a Service's ports with these labels; of a protocol alone one may stand for all."""

    def has_namespace(self, namespace: str) -> bool | None: ...
    def service_by_ip(self, ip: str) -> core_v1.Service | None: ...
    def names(self, address: str) -> Iterable[tuple[str, str]]:
        """Return what headless Services call an address of a ready endpoint: the Service's key and a label."""

    def has_pod(self, namespace: str, ip: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Answer:
    """`about` is the key of the Service that the answer depends on, "*" where it is any. `follow` is a name outside
    the zone that a CNAME leads to."""

    rcode: int
    answers: tuple[Record, ...] = ()
    authority: tuple[Record, ...] = ()
    additional: tuple[Record, ...] = ()
    about: str = "*"
    follow: str = ""


class Zone:
    """The zone of a cluster domain, and the reverse zones of its address ranges."""

    def __init__(
        self,
        directory: Directory,
        domain: str,
        *,
        ttl: int = 5,
        addresses: Sequence[str] = (),
        ranges: Sequence[str] = (),
        pods: str = "insecure",
    ) -> None:
        self._directory, self._ttl, self._pods = directory, ttl, pods
        self.domain = domain.strip(".").lower()
        self._suffix = "." + self.domain
        self._addresses = addresses
        self._ranges = [ipaddress.ip_network(cidr, strict=False) for cidr in ranges]
        self._owner = wire.encode_name(self.domain)

    def answer(self, name: str, kind: int, room: int = ROOM) -> Answer | None:
        """Answer a question (name in lower case, no last dot); None where the name is not of this zone.

        Records are made until they fill `room` bytes, and one beyond, by which it is seen that not all fit.
        """
        if name == self.domain:
            return self._apex(kind)
        if name.endswith(self._suffix):
            return self._inside(name.removesuffix(self._suffix).split("."), kind, room, 0)
        if name.endswith(".arpa"):
            address = wire.reverse_address(name)
            if address is not None:
                return self._reverse(address, kind, room)
        return None

    # -- shapes of an answer --------------------------------------------------------------------------------------
    def _soa(self) -> Record:
        rdata = wire.soa_rdata(f"ns.dns.{self.domain}", f"hostmaster.{self.domain}", 1, 7200, 1800, 86400, self._ttl)
        return Record(wire.SOA, rdata, self._owner, self._ttl)

    def _missing(self, about: str = "*") -> Answer:
        return Answer(wire.NXDOMAIN, authority=(self._soa(),), about=about)

    def _records(
        self,
        records: Iterable[Record],
        kind: int,
        about: str = "*",
        additional: Iterable[Record] = (),
        room: int = ROOM,
    ) -> Answer:
        """The records of the type asked for; a name that exists without any answers NOERROR and the SOA."""
        chosen, left = _fill(room, (record for record in records if kind in (record.type, wire.ANY)))
        if not chosen:
            return Answer(wire.NOERROR, authority=(self._soa(),), about=about)
        return Answer(wire.NOERROR, chosen, additional=_fill(left, additional)[0], about=about)

    def _address(self, ip: str, owner: bytes | None = None) -> Record:
        kind, rdata = wire.address_rdata(ip)
        return Record(kind, rdata, owner, self._ttl)

    # -- names ----------------------------------------------------------------------------------------------------
    def _apex(self, kind: int) -> Answer:
        soa = self._soa()
        own = [Record(wire.SOA, soa.rdata, None, self._ttl)]
        own.append(Record(wire.NS, wire.encode_name(f"ns.dns.{self.domain}"), None, self._ttl))
        return self._records(own, kind)

    def _inside(self, labels: list[str], kind: int, room: int, depth: int) -> Answer:
        match labels:
            case [*_, "svc"]:
                return self._service_name(labels[:-1], kind, room, depth)
            case [*_, "pod"]:
                return self._pod_name(labels[:-1], kind)
            case ["dns-version"]:
                return self._records([Record(wire.TXT, wire.txt_rdata(SPEC_VERSION), None, self._ttl)], kind)
            case ["ns", "dns"]:
                return self._records([self._address(ip) for ip in self._addresses], kind)
            case ["dns"]:
                return self._records((), kind)
        return self._missing()

    def _pod_name(self, labels: list[str], kind: int) -> Answer:
        """`1-2-3-4.namespace.pod`: the address is taken from the name; mode "verified" asks for a pod that has it."""
        if self._pods == "disabled":
            return self._missing()
        if labels:
            exists = self._directory.has_namespace(labels[-1])
            # Where namespaces are not known, there may be names below every one: any address has one, or any pod.
            if exists is False or (exists is None and len(labels) == 1 and self._pods == "verified"):
                return self._missing()
        match labels:
            case [] | [_]:
                return self._records((), kind)
            case [dashed, namespace]:
                for text in (dashed.replace("-", "."), dashed.replace("-", ":")):
                    ip = wire.address(text)
                    if ip is None:
                        continue
                    if self._pods == "verified" and not self._directory.has_pod(namespace, ip):
                        break
                    return self._records([self._address(ip)], kind)
        return self._missing()

    def _service_name(self, labels: list[str], kind: int, room: int, depth: int) -> Answer:
        match labels:
            case []:
                return self._records((), kind)
            case [namespace]:
                return self._records((), kind) if self._directory.has_namespace(namespace) else self._missing()
            case [*rest, name, namespace]:
                key = f"{namespace}/{name}"
                service = self._directory.service(key)
                if service is None:
                    return self._missing(key)
                return self._of_service(service, key, rest, kind, room, depth)
        return self._missing()

    def _of_service(
        self, service: core_v1.Service, key: str, rest: list[str], kind: int, room: int, depth: int
    ) -> Answer:
        spec = service.spec
        if spec.type == "ExternalName":
            if rest:
                return self._missing(key)
            return self._external_name(spec.external_name or "", key, kind, room, depth)
        if not rest:
            # A headless Service without ready endpoints does not exist in DNS, as upstream's server has it.
            if headless(service) and next(self._directory.hosts(key), None) is None:
                return self._missing(key)
            if kind == wire.SRV:
                return self._srv(service, key, room)
            if headless(service):
                return self._of_hosts(key, kind, room)
            return self._records([self._address(ip) for ip in dict.fromkeys(self._cluster_ips(service))], kind, key)
        if rest[-1].startswith("_"):
            protocol = rest[-1]
            port = rest[-2] if len(rest) == 2 and rest[-2].startswith("_") else None
            if len(rest) > 1 and port is None:
                return self._missing(key)
            return self._srv(service, key, room, port, protocol, kind)
        if len(rest) == 1 and next(self._directory.hosts(key, label=rest[0]), None) is not None:
            return self._of_hosts(key, kind, room, rest[0])
        return self._missing(key)

    def _of_hosts(self, key: str, kind: int, room: int, label: str | None = None) -> Answer:
        """The addresses of ready endpoints, those with a label where one is given."""
        found = self._directory.hosts(key, FAMILIES[kind], label) if kind in FAMILIES else ()
        return self._records((self._address(ip) for ip in unique(host.ip for host in found)), kind, key, room=room)

    def _external_name(self, target: str, key: str, kind: int, room: int, depth: int) -> Answer:
        try:
            alias = Record(wire.CNAME, wire.encode_name(target), None, self._ttl)
        except ValueError:
            return Answer(wire.SERVFAIL, about=key)
        if kind in (wire.CNAME, wire.ANY):
            return Answer(wire.NOERROR, (alias,), about=key)
        inner = target.rstrip(".").lower()
        if not inner.endswith(self._suffix):
            return Answer(wire.NOERROR, (alias,), about=key, follow=inner)
        if depth > 7:
            return Answer(wire.SERVFAIL, about=key)
        onward = self._inside(inner.removesuffix(self._suffix).split("."), kind, room, depth + 1)
        owner = wire.encode_name(inner)
        moved = tuple(
            Record(record.type, record.rdata, owner if record.owner is None else record.owner, record.ttl)
            for record in onward.answers
        )
        return Answer(onward.rcode, (alias, *moved), onward.authority, onward.additional, "*", onward.follow)

    # -- parts ----------------------------------------------------------------------------------------------------
    @staticmethod
    def _cluster_ips(service: core_v1.Service) -> list[str]:
        return service.spec.cluster_ips or [service.spec.cluster_ip or ""]

    def _srv(
        self,
        service: core_v1.Service,
        key: str,
        room: int,
        port_label: str | None = None,
        protocol_label: str | None = None,
        kind: int = wire.SRV,
    ) -> Answer:
        """`_port._protocol.service...`, or every port where no label narrows it; targets' addresses go along."""
        if protocol_label is not None and kind not in (wire.SRV, wire.ANY):
            room = 0  # it matters only whether there is a record
        name = f"{service.metadata.name}.{service.metadata.namespace}.svc.{self.domain}"
        most = max(WEIGHTS, room // (SRV_BYTES + len(name)) + 1)
        targets: dict[tuple[str, int], None] = {}
        extra: dict[tuple[str, str], None] = {}
        for host, port in self._ends(service, key, port_label, protocol_label):
            target = f"{host.hostname}.{name}" if host.hostname else name
            targets[target, port] = None
            extra[target, host.ip] = None
            if len(targets) >= most or len(extra) >= most:
                break
        if not targets:
            return self._missing(key)
        if protocol_label is not None and port_label is None:
            return self._records((), kind, key)
        weight = max(1, 100 // len(targets))
        records = (
            Record(wire.SRV, wire.srv_rdata(0, weight, port, target), None, self._ttl) for target, port in targets
        )
        additional = (self._address(ip, wire.encode_name(target)) for target, ip in extra)
        return self._records(records, kind, key, additional, room)

    def _ends(
        self, service: core_v1.Service, key: str, port: str | None, protocol: str | None
    ) -> Iterator[tuple[Host, int]]:
        """Go through the ends that SRV records name: ports of endpoints, or of the Service itself, which has no hostname."""
        if headless(service):
            yield from self._directory.ends(key, port, protocol)
            return
        for number in self._directory.numbers(service, port, protocol):
            for ip in self._cluster_ips(service):
                yield Host("", ip), number

    def _reverse(self, address: str, kind: int, room: int) -> Answer | None:
        names = self._names_of(address)
        first = next(names, None)
        if first is None:
            ip = ipaddress.ip_address(address)
            return self._missing() if any(ip in network for network in self._ranges) else None
        if kind not in (wire.PTR, wire.ANY):
            return self._records((), kind)
        found = itertools.chain((first,), names)
        return self._records(
            (Record(wire.PTR, wire.encode_name(name), None, self._ttl) for name in found), kind, room=room
        )

    def _names_of(self, address: str) -> Iterator[str]:
        service = self._directory.service_by_ip(address)
        if service is not None:
            yield f"{service.metadata.name}.{service.metadata.namespace}.svc.{self.domain}"
            return
        for key, label in self._directory.names(address):
            namespace, _, name = key.partition("/")
            yield f"{label}.{name}.{namespace}.svc.{self.domain}"


def _fill(room: int, records: Iterable[Record]) -> tuple[tuple[Record, ...], int]:
    """Return the records that fit in so many bytes and, where some do not, one more; and the bytes that are left."""
    made = []
    for record in records:
        made.append(record)
        room -= record.size
        if room < 0:
            break
    return tuple(made), room
