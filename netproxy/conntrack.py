"""Deletes connection tracking entries (flows) that lead to endpoints that are gone.

TCP notices a dead peer by itself, SCTP and UDP do not. A UDP client that keeps its port keeps its flow, and with it the
translation to an endpoint that no longer answers; or, where the flow began while the Service had no endpoint, no
translation at all. So after a change of such a port's endpoints the flows to removed endpoints are deleted, and those of
a port that gains its first endpoint. Upstream's rule (pkg/proxy/conntrack) for the same reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import NamedTuple

from kube.process import CommandError, pieces, run
from netproxy import metrics
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

PROTOCOLS = ("UDP", "SCTP")
"""Protocols whose flows outlive their endpoint."""
LIST_TIMEOUT = 30.0
"""Seconds that listing the flows of a protocol may take."""


def stale_flows(old: Iterable[ServicePort], new: Iterable[ServicePort]) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for each set of flows that a change makes stale.

    Endpoints are compared by address and port. An address or node port that a Service gains is as one that gains its first
    endpoint: nothing translated what was sent to it before.
    """
    before, after = _by_target(old), _by_target(new)
    result: list[list[str]] = []
    for target, was in before.items():
        lost = was.endpoints - after.get(target, _NOWHERE).endpoints
        result += [[*target, "--reply-src", ip, "--reply-port-src", str(port)] for ip, port in sorted(lost)]
    for target, now in after.items():
        if now.translated and not before.get(target, _NOWHERE).translated:
            result.append([*target])
    return result


class _Destination(NamedTuple):
    """Translation of what is sent to an address and port: whether there is any, and to which endpoints."""

    translated: bool
    endpoints: frozenset[tuple[str, int]]


_NOWHERE = _Destination(False, frozenset())


def _by_target(ports: Iterable[ServicePort]) -> dict[tuple[str, ...], _Destination]:
    found: dict[tuple[str, ...], _Destination] = {}
    for port in ports:
        if port.protocol in PROTOCOLS:
            endpoints = frozenset((each.ip, each.port) for each in (*port.endpoints, *port.local_endpoints))
            for target in _targets(port):
                other = found.get(target, _NOWHERE)  # another port can have the same external IP
                translated = other.translated or port.has_endpoints_anywhere
                found[target] = _Destination(translated, other.endpoints | endpoints)
    return found


def _targets(port: ServicePort) -> list[tuple[str, ...]]:
    family = "ipv4" if port.family == 4 else "ipv6"
    base = ("-f", family, "-p", port.protocol.lower())
    addresses = (port.cluster_ip, *port.external_ips, *port.load_balancer_ips)
    targets: list[tuple[str, ...]] = [(*base, "--orig-dst", ip, "--orig-port-dst", str(port.port)) for ip in addresses]
    if port.node_port:
        targets.append((*base, "--orig-port-dst", str(port.node_port)))
    return targets


async def delete_flows(flows: list[list[str]], concurrent: int = 1) -> None:
    """Delete the flows, so many at a time; what cannot be deleted is logged, for rules are right all the same."""
    waiting = iter(flows)

    async def work() -> None:
        for arguments in waiting:
            await _delete(arguments)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(concurrent, len(flows))):
                group.create_task(work(), name="deletion of flows")
    except* CommandError as failed:
        log.warning("stale flows stay until they time out: %s", failed.exceptions[0])


async def _delete(arguments: list[str]) -> None:
    family, began = arguments[1].replace("ip", "IP"), time.monotonic()
    done = await run(["conntrack", "-D", *arguments], check=False, timeout=10)
    metrics.CONNTRACK_SYNC.labels(family).observe(time.monotonic() - began)
    # Exit status 1 with "0 flow entries" is the ordinary case of nothing to delete.
    found = re.search(r"([0-9]+) flow entries have been deleted", done.stderr)
    if found:
        metrics.FLOWS_DELETED.labels(family).inc(int(found[1]))
    if done.returncode not in (0, 1):
        log.warning("conntrack -D %s: %s", " ".join(arguments), done.stderr.strip())


async def existing(flows: list[list[str]]) -> list[list[str]]:
    """Return those of `stale_flows` that match a flow that there is; all where the flows cannot be listed."""
    wanted, found = {tuple(each) for each in flows}, dict[tuple[str, ...], None]()
    for family, protocol in sorted({(each[1], each[3]) for each in flows}):
        try:
            async for lines in _listed(family, protocol):
                found.update(dict.fromkeys(await asyncio.to_thread(_matched, lines, family, wanted)))
        except CommandError as error:
            log.warning("flows cannot be listed: %s", error)
            return flows
    return [list(each) for each in found]


async def _listed(family: str, protocol: str) -> AsyncIterator[bytes]:
    """Iterate over `conntrack -L`'s output in whole lines, some 100 KB at a time: a full table's is 40 MB."""
    rest = b""
    async with contextlib.aclosing(
        pieces(["conntrack", "-L", "-f", family, "-p", protocol], timeout=LIST_TIMEOUT)
    ) as read:
        async for piece in read:
            lines, end, rest = (rest + piece).rpartition(b"\n")
            yield lines + end
    yield rest


def _matched(listed: bytes, family: str, wanted: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    result = set()
    for flow in _flows(listed):
        base = ("-f", family, "-p", flow.protocol)
        for to in ((), ("--orig-dst", flow.to)):
            for end in ((), ("--reply-src", flow.answering, "--reply-port-src", flow.answering_port)):
                result.add((*base, *to, "--orig-port-dst", flow.to_port, *end))
    return sorted(result & wanted)


_TUPLE = re.compile(r"src=(\S+) dst=(\S+) sport=([0-9]+) dport=([0-9]+)")


class Flow(NamedTuple):
    """A flow: its original source and destination, and the address that answers."""

    protocol: str
    source: str
    to: str
    source_port: str
    to_port: str
    answering: str
    answering_port: str


def _flows(listed: bytes) -> Iterator[Flow]:
    """Read `conntrack -L`'s output."""
    for line in listed.decode(errors="replace").splitlines():
        tuples = _TUPLE.findall(line)
        if len(tuples) == 2:
            (source, to, source_port, to_port), (answering, _, answering_port, _) = tuples
            yield Flow(line.split(maxsplit=1)[0], source, to, source_port, to_port, answering, answering_port)


Wanted = dict[tuple[str, str, str], set[tuple[str, str]]]
"""Protocol, address (or family) and port -> the endpoints (address and port) that flows to it may lead to."""


def wanted_endpoints(ports: Iterable[ServicePort]) -> Wanted:
    """Return the endpoints of Services by what flows to them are found by."""
    wanted: Wanted = {}
    for port in ports:
        if port.protocol in PROTOCOLS and port.has_endpoints_anywhere:
            protocol, family = port.protocol.lower(), str(port.family)
            endpoints = {(each.ip, str(each.port)) for each in (*port.endpoints, *port.local_endpoints)}
            for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_ips):
                wanted.setdefault((protocol, ip, str(port.port)), set()).update(endpoints)
            if port.node_port:
                wanted.setdefault((protocol, family, str(port.node_port)), set()).update(endpoints)
    return wanted


def stale_entries(listed: bytes, wanted: Wanted) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for flows in `conntrack -L`'s output that lead to no endpoint of a Service.

    Those are flows to a Service's address and port, or to a node port, that were translated to something else than one of
    its endpoints, or not at all though it has some. For the start: what changed while nobody followed.
    """
    found = []
    for flow in _flows(listed):
        family = "6" if ":" in flow.to else "4"
        endpoints = wanted.get((flow.protocol, flow.to, flow.to_port)) or wanted.get(
            (flow.protocol, family, flow.to_port), set()
        )
        if endpoints and (flow.answering, flow.answering_port) not in endpoints:
            exact = ["--orig-src", flow.source, "--orig-dst", flow.to]
            exact += ["--orig-port-src", flow.source_port, "--orig-port-dst", flow.to_port]
            found.append(["-f", f"ipv{family}", "-p", flow.protocol, *exact])
    return found


async def delete_leftovers(services: Mapping[str, tuple[ServicePort, ...]], concurrent: int = 1) -> None:
    """Delete the flows of UDP and SCTP, left by an earlier process, that do not lead to an endpoint of their Service."""
    ports = [port for each in services.values() for port in each if port.protocol in PROTOCOLS]
    wanted = await asyncio.to_thread(wanted_endpoints, ports)
    for protocol, family in sorted({(port.protocol.lower(), f"ipv{port.family}") for port in ports}):
        stale: list[list[str]] = []
        try:
            async for lines in _listed(family, protocol):
                stale += await asyncio.to_thread(stale_entries, lines, wanted)
        except CommandError as error:
            log.warning("flows of an earlier process cannot be listed: %s", error)
            return
        await delete_flows(stale, concurrent)
