"""Answers the names of a Service: its addresses, endpoints, ports (SRV) or external name. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kube.api import core_v1
from kube.ip_addresses import canonical
from netproxy.dns import wire
from netproxy.dns.answer_factory import Answer, AnswerFactory
from netproxy.dns.directory import Directory
from netproxy.dns.endpoints import FAMILIES, Host, Limited, headless, unique
from netproxy.dns.wire import Record

SRV_BYTES = 20
"""Of an SRV record, beside the text of its target."""
WEIGHTS = 101
"""SRV records that are counted for their weight, a share of 100 that is 1 at least."""

Inside = Callable[[list[str], int, int, int], Answer]
"""Answers a name inside the zone: its labels, the type, the room and how many CNAMEs led to it."""


class ServiceNames:
    """Answers the names below a Service."""

    def __init__(self, directory: Directory, answers: AnswerFactory, inside: Inside) -> None:
        self._directory, self._answers, self._inside = directory, answers, inside

    def answer(self, service: core_v1.Service, key: str, rest: list[str], kind: int, room: int, depth: int) -> Answer:
        """Answer the name of a Service, or one with the labels `rest` before it, of `room` bytes at most."""
        spec = service.spec
        if spec.type == "ExternalName":
            if rest:
                return self._answers.nxdomain(key)
            return self._external_name(spec.external_name or "", key, kind, room, depth)
        if not rest:
            # A headless Service without ready endpoints does not exist in DNS, as upstream's server has it.
            if headless(service) and next(self._directory.hosts(key), None) is None:
                return self._answers.nxdomain(key)
            if kind == wire.SRV:
                return self._srv(service, key, room)
            if headless(service):
                return self._of_hosts(key, kind, room)
            return self._answers.of(
                [self._answers.address(ip) for ip in dict.fromkeys(self._cluster_ips(service))], kind, key
            )
        if rest[-1].startswith("_"):
            protocol = rest[-1]
            port = rest[-2] if len(rest) == 2 and rest[-2].startswith("_") else None
            if len(rest) > 1 and port is None:
                return self._answers.nxdomain(key)
            return self._srv(service, key, room, port, protocol, kind)
        if len(rest) == 1 and next(self._directory.hosts(key, label=rest[0]), None) is not None:
            return self._of_hosts(key, kind, room, rest[0])
        return self._answers.nxdomain(key)

    def _of_hosts(self, key: str, kind: int, room: int, label: str | None = None) -> Answer:
        """The addresses of ready endpoints, those with a label where one is given."""
        found = Limited(self._directory.hosts(key, FAMILIES[kind], label) if kind in FAMILIES else ())
        answer = self._answers.of(
            (self._answers.address(ip) for ip in unique(host.ip for host in found)), kind, key, room=room
        )
        return replace(answer, cut=True) if found.cut else answer

    def _external_name(self, target: str, key: str, kind: int, room: int, depth: int) -> Answer:
        try:
            alias = self._answers.record(wire.CNAME, wire.encode_name(target))
        except ValueError:
            return Answer(wire.SERVFAIL, about=key)
        if kind in (wire.CNAME, wire.ANY):
            return Answer(wire.NOERROR, (alias,), about=key)
        inner, suffix = target.rstrip(".").lower(), f".{self._answers.domain}"
        if not inner.endswith(suffix):
            return Answer(wire.NOERROR, (alias,), about=key, follow=inner)
        if depth > 7:
            return Answer(wire.SERVFAIL, about=key)
        onward = self._inside(inner.removesuffix(suffix).split("."), kind, room, depth + 1)
        owner = wire.encode_name(inner)
        moved = tuple(
            Record(record.type, record.rdata, owner if record.owner is None else record.owner, record.ttl)
            for record in onward.answers
        )
        return Answer(
            onward.rcode, (alias, *moved), onward.authority, onward.additional, "*", onward.follow, onward.cut
        )

    @staticmethod
    def _cluster_ips(service: core_v1.Service) -> list[str]:
        return [canonical(ip) for ip in service.spec.cluster_ips or [service.spec.cluster_ip or ""]]

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
        name = f"{service.metadata.name}.{service.metadata.namespace}.svc.{self._answers.domain}"
        most = max(WEIGHTS, room // (SRV_BYTES + len(name)) + 1)
        targets: dict[tuple[str, int], None] = {}
        extra: dict[tuple[str, str], None] = {}
        targets_found = Limited(self._srv_targets(service, key, port_label, protocol_label))
        for host, port in targets_found:
            target = f"{host.hostname}.{name}" if host.hostname else name
            targets[target, port] = None
            extra[target, host.ip] = None
            if len(targets) >= most or len(extra) >= most:
                break
        if not targets:
            return self._answers.nxdomain(key)
        if protocol_label is not None and port_label is None:
            return self._answers.of((), kind, key)
        weight = max(1, 100 // len(targets))
        records = (self._answers.record(wire.SRV, wire.srv_rdata(0, weight, port, target)) for target, port in targets)
        additional = (self._answers.address(ip, wire.encode_name(target)) for target, ip in extra)
        answer = self._answers.of(records, kind, key, additional, room)
        return replace(answer, cut=True) if targets_found.cut else answer

    def _srv_targets(
        self, service: core_v1.Service, key: str, port: str | None, protocol: str | None
    ) -> Iterator[tuple[Host, int]]:
        """Iterate over the targets of SRV records: ports of endpoints, or of the Service itself, which has no hostname."""
        if headless(service):
            yield from self._directory.srv_targets(key, port, protocol)
            return
        for number in self._directory.port_numbers(service, port, protocol):
            for ip in self._cluster_ips(service):
                yield Host("", ip), number
