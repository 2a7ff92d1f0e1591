"""Deletes connection tracking entries (flows) that lead to endpoints that are gone.

TCP notices a dead peer by itself, SCTP and UDP do not. A UDP client that keeps its port keeps its flow, and with it the
translation to an endpoint that no longer answers; or, where the flow began while the Service had no endpoint, no
translation at all. So after a change of such a port's endpoints the flows to removed endpoints are deleted, and those of
a port that gains its first endpoint. Upstream's rule (pkg/proxy/conntrack) for the same reason.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from netproxy import flow_table, metrics
from netproxy.flow_table import Flow
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

PROTOCOLS = ("UDP", "SCTP")
"""Protocols whose flows outlive their endpoint."""


class StaleFlows(NamedTuple):
    """Flows of an IP version and a protocol to a port, at an address or at any (""), that an endpoint answers, or any ("")."""

    version: int
    protocol: str
    destination: str
    port: int
    endpoint: str = ""
    endpoint_port: int = 0


def stale_flows(old: Iterable[ServicePort], new: Iterable[ServicePort]) -> list[StaleFlows]:
    """Return the flows that a change makes stale.

    Endpoints are compared by address and port. An address or node port that a Service gains is as one that gains its first
    endpoint: nothing translated what was sent to it before.
    """
    before, after = _by_target(old), _by_target(new)
    result: list[StaleFlows] = []
    for target, was in before.items():
        lost = was.endpoints - after.get(target, _NOWHERE).endpoints
        result += [target._replace(endpoint=ip, endpoint_port=port) for ip, port in sorted(lost)]
    for target, now in after.items():
        if now.translated and not before.get(target, _NOWHERE).translated:
            result.append(target)
    return result


class _Destination(NamedTuple):
    """Translation of what is sent to an address and port: whether there is any, and to which endpoints."""

    translated: bool
    endpoints: frozenset[tuple[str, int]]


_NOWHERE = _Destination(False, frozenset())


def _by_target(ports: Iterable[ServicePort]) -> dict[StaleFlows, _Destination]:
    found: dict[StaleFlows, _Destination] = {}
    for port in ports:
        if port.protocol in PROTOCOLS:
            endpoints = frozenset((each.ip, each.port) for each in (*port.endpoints, *port.local_endpoints))
            for target in _targets(port):
                other = found.get(target, _NOWHERE)  # another port can have the same external IP
                translated = other.translated or port.has_endpoints_anywhere
                found[target] = _Destination(translated, other.endpoints | endpoints)
    return found


def _targets(port: ServicePort) -> list[StaleFlows]:
    addresses = (port.cluster_ip, *port.external_ips, *port.load_balancer_ips)
    targets = [StaleFlows(port.family, port.protocol, ip, port.port) for ip in addresses]
    if port.node_port:
        targets.append(StaleFlows(port.family, port.protocol, "", port.node_port))
    return targets


async def delete_flows(flows: Collection[StaleFlows]) -> None:
    """Delete the flows, with one list for each IP version and protocol; what cannot be deleted is logged."""
    kinds: dict[tuple[int, str], list[StaleFlows]] = {}
    for each in flows:
        kinds.setdefault((each.version, each.protocol), []).append(each)
    for (version, protocol), wanted in sorted(kinds.items()):
        ports = {each.port for each in wanted}
        await _delete(version, protocol, matcher(wanted), ports.pop() if len(ports) == 1 else 0)


def matcher(wanted: Iterable[StaleFlows]) -> Callable[[Flow], bool]:
    """Return a function that finds the flows of one IP version and protocol among those of the kernel."""
    keys = {
        (_packed(each.destination), each.port, _packed(each.endpoint), each.endpoint_port if each.endpoint else 0)
        for each in wanted
    }

    def matches(flow: Flow) -> bool:
        to, answered = (flow.destination, b""), ((flow.answering, flow.answering_port), (b"", 0))
        return any((address, flow.port, *end) in keys for address in to for end in answered)

    return matches


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed if address else b""


async def _delete(version: int, protocol: str, stale: Callable[[Flow], bool], port: int = 0) -> None:
    """Delete flows in a thread: a list of 40 000 takes 0.2 s."""
    family, began = f"IPv{version}", time.monotonic()
    try:
        count = await asyncio.to_thread(
            flow_table.delete_stale, flow_table.connect(), version, flow_table.PROTOCOLS[protocol], stale, port
        )
    except OSError as error:
        log.warning("stale flows of %s stay until they time out: %s", protocol, error)
        return
    metrics.CONNTRACK_SYNC.labels(family).observe(time.monotonic() - began)
    if count:
        metrics.FLOWS_DELETED.labels(family).inc(count)


Wanted = dict[tuple[bytes, int], set[tuple[bytes, int]]]
"""Address (or none) and port -> the endpoints (address and port) that flows to it may lead to."""


def wanted_endpoints(ports: Iterable[ServicePort], version: int, protocol: str) -> Wanted:
    """Return the endpoints of Services of an IP version and protocol, by what flows to them are found by."""
    wanted: Wanted = {}
    for port in ports:
        if (port.family, port.protocol) == (version, protocol) and port.has_endpoints_anywhere:
            endpoints = {(_packed(each.ip), each.port) for each in (*port.endpoints, *port.local_endpoints)}
            for target in _targets(port):
                wanted.setdefault((_packed(target.destination), target.port), set()).update(endpoints)
    return wanted


def leftover(wanted: Wanted) -> Callable[[Flow], bool]:
    """Return a function that finds flows that lead to no endpoint of a Service. For the start: what changed unnoticed.

    Those are flows to a Service's address and port, or to a node port, that were translated to something else than one of
    its endpoints, or not at all though it has some.
    """

    def matches(flow: Flow) -> bool:
        endpoints = wanted.get((flow.destination, flow.port)) or wanted.get((b"", flow.port), set())
        return bool(endpoints) and (flow.answering, flow.answering_port) not in endpoints

    return matches


async def delete_leftovers(services: Mapping[str, tuple[ServicePort, ...]]) -> None:
    """Delete the flows of UDP and SCTP, left by an earlier process, that do not lead to an endpoint of their Service."""
    ports = [port for each in services.values() for port in each if port.protocol in PROTOCOLS]
    for version, protocol in sorted({(port.family, port.protocol) for port in ports}):
        wanted = await asyncio.to_thread(wanted_endpoints, ports, version, protocol)
        await _delete(version, protocol, leftover(wanted))
