"""Deletes connection tracking entries (flows) that lead to endpoints that are gone.

TCP notices a dead peer by itself, SCTP and UDP do not. A UDP client that keeps its port keeps its flow, and with it the
translation to an endpoint that no longer answers; or, where the flow began while the Service had no endpoint, no
translation at all. So after a change of such a port's endpoints the flows to removed endpoints are deleted, and those of
a port that gains its first endpoint. Upstream's rule (pkg/proxy/conntrack) for the same reason.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from kube.process import CommandError, run
from netproxy import metrics
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

PROTOCOLS = ("UDP", "SCTP")
"""Protocols whose flows outlive their endpoint."""


def stale_flows(old: Iterable[ServicePort], new: Iterable[ServicePort]) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for each set of flows that a change makes stale."""
    before = {(port.name, port.family, port.protocol): port for port in old if port.protocol in PROTOCOLS}
    after = {(port.name, port.family, port.protocol): port for port in new if port.protocol in PROTOCOLS}
    result: list[list[str]] = []
    for key, was in before.items():
        now = after.get(key)
        kept = {each.ip for each in (*now.endpoints, *now.local_endpoints)} if now else set()
        lost = {each.ip for each in (*was.endpoints, *was.local_endpoints)} - kept
        for ip in sorted(lost):
            result += [[*target, "--dst-nat", ip] for target in _targets(was)]
    for key, now in after.items():
        earlier = before.get(key)
        if now.has_endpoints and (earlier is None or not earlier.has_endpoints):
            result += _targets(now)
    return result


def _targets(port: ServicePort) -> list[list[str]]:
    family = "ipv4" if port.family == 4 else "ipv6"
    base = ["-f", family, "-p", port.protocol.lower()]
    addresses = (port.cluster_ip, *port.external_ips, *port.load_balancer_ips)
    targets = [[*base, "--orig-dst", ip, "--orig-port-dst", str(port.port)] for ip in addresses]
    if port.node_port:
        targets.append([*base, "--orig-port-dst", str(port.node_port)])
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
    found = re.search(r"(\d+) flow entries have been deleted", done.stderr)
    if found:
        metrics.FLOWS_DELETED.labels(family).inc(int(found[1]))
    if done.returncode not in (0, 1):
        log.warning("conntrack -D %s: %s", " ".join(arguments), done.stderr.strip())


async def existing(flows: list[list[str]]) -> list[list[str]]:
    """Return those of `stale_flows` that match a flow that there is; all where the flows cannot be listed."""
    wanted, found = {tuple(each) for each in flows}, dict[tuple[str, ...], None]()
    for family, protocol in sorted({(each[1], each[3]) for each in flows}):
        try:
            listed = await run(["conntrack", "-L", "-f", family, "-p", protocol], check=False, timeout=30)
        except CommandError as error:
            log.warning("flows cannot be listed: %s", error)
            return flows
        found.update(dict.fromkeys(await asyncio.to_thread(_matched, listed.stdout, family, wanted)))
    return [list(each) for each in found]


def _matched(listed: str, family: str, wanted: set[tuple[str, ...]]) -> list[tuple[str, ...]]:
    result = set()
    for flow in _flows(listed):
        base = ("-f", family, "-p", flow.protocol)
        for to in ((), ("--orig-dst", flow.to)):
            for nat in ((), ("--dst-nat", flow.answering)):
                result.add((*base, *to, "--orig-port-dst", flow.to_port, *nat))
    return sorted(result & wanted)


_TUPLE = re.compile(r"src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)")


class Flow(NamedTuple):
    """A flow: its original source and destination, and the address that answers."""

    protocol: str
    source: str
    to: str
    source_port: str
    to_port: str
    answering: str
    answering_port: str


def _flows(listed: str) -> Iterator[Flow]:
    """Read `conntrack -L`'s output."""
    for line in listed.splitlines():
        tuples = _TUPLE.findall(line)
        if len(tuples) == 2:
            (source, to, source_port, to_port), (answering, _, answering_port, _) = tuples
            yield Flow(line.split(maxsplit=1)[0], source, to, source_port, to_port, answering, answering_port)


def stale_entries(listed: str, ports: Iterable[ServicePort]) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for flows in `conntrack -L`'s output that lead to no endpoint of a Service.

    Those are flows to a Service's address and port, or to a node port, that were translated to something else than one of
    its endpoints, or not at all though it has some. For the start: what changed while nobody followed.
    """
    wanted: dict[tuple[str, str, str], set[tuple[str, str]]] = {}
    for port in ports:
        if port.protocol in PROTOCOLS and port.has_endpoints:
            protocol, family = port.protocol.lower(), str(port.family)
            endpoints = {(each.ip, str(each.port)) for each in (*port.endpoints, *port.local_endpoints)}
            for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_ips):
                wanted.setdefault((protocol, ip, str(port.port)), set()).update(endpoints)
            if port.node_port:
                wanted.setdefault((protocol, family, str(port.node_port)), set()).update(endpoints)
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
    for protocol, family in sorted({(port.protocol.lower(), f"ipv{port.family}") for port in ports}):
        try:
            listed = await run(["conntrack", "-L", "-f", family, "-p", protocol], check=False, timeout=30)
        except CommandError as error:
            log.warning("flows of an earlier process cannot be listed: %s", error)
            return
        await delete_flows(await asyncio.to_thread(stale_entries, listed.stdout, ports), concurrent)
