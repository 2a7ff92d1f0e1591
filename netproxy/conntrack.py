"""Flows that connection tracking would keep sending to an endpoint that is gone.

TCP notices a dead peer by itself, SCTP and UDP do not. A UDP client that keeps its port keeps its flow, and with it the
translation to an endpoint that no longer answers; or, where the flow began while the Service had no endpoint, no
translation at all. So after a change of such a port's endpoints the flows to removed endpoints are deleted, and those of
a port that gains its first endpoint. Upstream's rule (pkg/proxy/conntrack) for the same reason.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping

from kube.process import CommandError, run
from netproxy import metrics
from netproxy.model import ServicePort

log = logging.getLogger(__name__)

KEPT = ("UDP", "SCTP")
"""Protocols whose flows outlive their endpoint."""


def stale_flows(old: Iterable[ServicePort], new: Iterable[ServicePort]) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for each set of flows that a change makes stale."""
    before = {(port.name, port.family, port.protocol): port for port in old if port.protocol in KEPT}
    after = {(port.name, port.family, port.protocol): port for port in new if port.protocol in KEPT}
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


async def delete_flows(flows: list[list[str]]) -> None:
    """Delete the flows; what cannot be deleted is logged, for rules are right all the same."""
    for arguments in flows:
        family, began = arguments[1].replace("ip", "IP"), time.monotonic()
        try:
            done = await run(["conntrack", "-D", *arguments], check=False, timeout=10)
        except CommandError as error:
            log.warning("stale flows stay until they time out: %s", error)
            return
        metrics.CONNTRACK_SYNC.labels(family).observe(time.monotonic() - began)
        # Exit status 1 with "0 flow entries" is the ordinary case of nothing to delete.
        found = re.search(r"(\d+) flow entries have been deleted", done.stderr)
        if found:
            metrics.FLOWS_DELETED.labels(family).inc(int(found[1]))
        if done.returncode not in (0, 1):
            log.warning("conntrack -D %s: %s", " ".join(arguments), done.stderr.strip())


_TUPLE = re.compile(r"src=(\S+) dst=(\S+) sport=(\d+) dport=(\d+)")


def stale_entries(listed: str, ports: Iterable[ServicePort]) -> list[list[str]]:
    """Return the arguments of `conntrack -D` for flows in `conntrack -L`'s output that lead where no Service does now.

    Those are flows to a Service's address and port that were translated to something else than one of its endpoints, or
    not at all though it has some. For the start: what changed while nobody followed.
    """
    wanted: dict[tuple[str, str, int], set[tuple[str, int]]] = {}
    for port in ports:
        if port.protocol in KEPT and port.has_endpoints:
            endpoints = {(each.ip, each.port) for each in (*port.endpoints, *port.local_endpoints)}
            for ip in (port.cluster_ip, *port.external_ips, *port.load_balancer_ips):
                wanted.setdefault((port.protocol.lower(), ip, port.port), set()).update(endpoints)
    found = []
    for line in listed.splitlines():
        tuples = _TUPLE.findall(line)
        if len(tuples) != 2:
            continue
        (source, to, source_port, to_port), (answering, _, answering_port, _) = tuples
        protocol = line.split(maxsplit=1)[0]
        endpoints = wanted.get((protocol, to, int(to_port)), set())
        if endpoints and (answering, int(answering_port)) not in endpoints:
            family = "ipv6" if ":" in to else "ipv4"
            flow = ["--orig-src", source, "--orig-dst", to, "--orig-port-src", source_port, "--orig-port-dst", to_port]
            found.append(["-f", family, "-p", protocol, *flow])
    return found


async def sweep(services: Mapping[str, tuple[ServicePort, ...]]) -> None:
    """Delete the flows of UDP and SCTP that an earlier life left leading elsewhere than to a Service's endpoints."""
    ports = [port for each in services.values() for port in each if port.protocol in KEPT]
    for protocol, family in sorted({(port.protocol.lower(), f"ipv{port.family}") for port in ports}):
        try:
            listed = await run(["conntrack", "-L", "-f", family, "-p", protocol], check=False, timeout=30)
        except CommandError as error:
            log.warning("flows of an earlier life cannot be looked at: %s", error)
            return
        await delete_flows(stale_entries(listed.stdout, ports))
