"""Answers to queries in the cluster's zone by the Kubernetes DNS specification 1.1.0. No I/O.

Nothing is precomputed: the Service is parsed from the queried name, so the answer is computed from that Service and its
slices at the first query, and the server caches its bytes until that Service changes (`about`). Memory and the cost of a
change do not depend on the number of Services.
"""

from __future__ import annotations

import ipaddress
import itertools
from collections.abc import Iterator, Sequence

from netproxy.dns import wire
from netproxy.dns.answer_factory import ROOM, Answer, AnswerFactory
from netproxy.dns.directory import Directory
from netproxy.dns.service_names import ServiceNames

SPEC_VERSION = "1.1.0"
TYPES = frozenset((wire.A, wire.NS, wire.CNAME, wire.SOA, wire.PTR, wire.TXT, wire.AAAA, wire.SRV, wire.ANY))
"""Types with answers of their own: the zone answers the same to all others."""


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
        self._directory, self._pods = directory, pods
        self.domain = domain.strip(".").lower()
        self._suffix = "." + self.domain
        self._addresses = addresses
        self._ranges = [ipaddress.ip_network(cidr, strict=False) for cidr in ranges]
        self._answers = AnswerFactory(self.domain, ttl)
        self._services = ServiceNames(directory, self._answers, self._inside)

    def answer(self, name: str, kind: int, room: int = ROOM) -> Answer | None:
        """Answer a question (name in lower case, no last dot); None if the name is not of this zone.

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

    # -- names ----------------------------------------------------------------------------------------------------
    def _apex(self, kind: int) -> Answer:
        soa = self._answers.soa()
        own = [self._answers.record(wire.SOA, soa.rdata)]
        own.append(self._answers.record(wire.NS, wire.encode_name(f"ns.dns.{self.domain}")))
        return self._answers.of(own, kind)

    def _inside(self, labels: list[str], kind: int, room: int, depth: int) -> Answer:
        match labels:
            case [*_, "svc"]:
                return self._service_name(labels[:-1], kind, room, depth)
            case [*_, "pod"]:
                return self._pod_name(labels[:-1], kind)
            case ["dns-version"]:
                return self._answers.of([self._answers.record(wire.TXT, wire.txt_rdata(SPEC_VERSION))], kind)
            case ["ns", "dns"]:
                return self._answers.of([self._answers.address(ip) for ip in self._addresses], kind)
            case ["dns"]:
                return self._answers.of((), kind)
        return self._answers.nxdomain()

    def _pod_name(self, labels: list[str], kind: int) -> Answer:
        """`1-2-3-4.namespace.pod`: the address is taken from the name; mode "verified" requests a pod that has it."""
        if self._pods == "disabled":
            return self._answers.nxdomain()
        if labels:
            exists = self._directory.has_namespace(labels[-1])
            # Where namespaces are not known, there may be names below every one: any address has one, or any pod.
            if exists is False or (exists is None and len(labels) == 1 and self._pods == "verified"):
                return self._answers.nxdomain()
        match labels:
            case [] | [_]:
                return self._answers.of((), kind)
            case [dashed, namespace]:
                for text in (dashed.replace("-", "."), dashed.replace("-", ":")):
                    ip = wire.address(text)
                    if ip is None:
                        continue
                    if self._pods == "verified" and not self._directory.has_pod(namespace, ip):
                        break
                    return self._answers.of([self._answers.address(ip)], kind)
        return self._answers.nxdomain()

    def _service_name(self, labels: list[str], kind: int, room: int, depth: int) -> Answer:
        match labels:
            case []:
                return self._answers.of((), kind)
            case [namespace]:
                return (
                    self._answers.of((), kind) if self._directory.has_namespace(namespace) else self._answers.nxdomain()
                )
            case [*rest, name, namespace]:
                key = f"{namespace}/{name}"
                service = self._directory.service(key)
                if service is None:
                    return self._answers.nxdomain(key)
                return self._services.answer(service, key, rest, kind, room, depth)
        return self._answers.nxdomain()

    def _reverse(self, address: str, kind: int, room: int) -> Answer | None:
        names = self._names_of(address)
        first = next(names, None)
        if first is None:
            ip = ipaddress.ip_address(address)
            return self._answers.nxdomain() if any(ip in network for network in self._ranges) else None
        if kind not in (wire.PTR, wire.ANY):
            return self._answers.of((), kind)
        found = itertools.chain((first,), names)
        return self._answers.of(
            (self._answers.record(wire.PTR, wire.encode_name(name)) for name in found), kind, room=room
        )

    def _names_of(self, address: str) -> Iterator[str]:
        service = self._directory.service_by_ip(address)
        if service is not None:
            yield f"{service.metadata.name}.{service.metadata.namespace}.svc.{self.domain}"
            return
        for key, label in self._directory.names_of_address(address):
            namespace, _, name = key.partition("/")
            yield f"{label}.{name}.{namespace}.svc.{self.domain}"
