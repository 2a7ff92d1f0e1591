"""Cluster DNS, and the pod network where it is wanted, in a process without a service proxy.

Another proxy serves the Services of this node then, or ours in a process of its own. What that proxy does with the cluster
DNS address does not matter: the Service's endpoint is the address itself (wherry/dns_service.py), which every node has, so a
packet that is translated to it stays on the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.events import EventRecorder
from kube.informer import Change, Informer
from kube.process import CommandError
from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.daemon import daemon
from netproxy import health, metrics, pod_side, sysctl
from netproxy.access import Access, connected
from netproxy.config import ProxyConfig
from netproxy.dns import cluster_dns
from netproxy.dns.cluster_dns import ClusterDNS
from netproxy.errors import ConfigError, WriteError
from netproxy.model import SERVICE_NAME_LABEL
from netproxy.pod_side import PodSide
from netproxy.podnet import network
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.validation import host_port

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    services: Informer[core_v1.Service]
    slices: Informer[discovery_v1.EndpointSlice]
    nodes: Informer[core_v1.Node]
    recorder: EventRecorder
    dns: ClusterDNS | None
    pods: PodSide
    masquerade: list[PodMasquerade]

    @property
    def well(self) -> bool:
        """Whether names are answered, and from what the API server has."""
        return self.dns is None or (self.dns.server.serving and self.services.synced and self.slices.synced)


@daemon
async def run(
    config: ProxyConfig,
    client: Client | None = None,
    clock: Clock = SYSTEM,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled; `ready` is called once names are answered. ConfigError before anything was touched."""
    if not config.dns.enabled and not config.pod_network.enabled:
        raise ConfigError("nothing to do: neither Services nor cluster DNS nor the pod network")
    if config.oom_score_adjust is not None:
        sysctl.adjust_oom_score(config.oom_score_adjust)
    async with connected(config, client, clock) as access, contextlib.AsyncExitStack() as stack:
        parts = build(config, access.client, clock)
        if access.changed is not None:
            parts.slices.subscribe(access.changed)
        for runner in await _serve_health(config, parts):
            stack.push_async_callback(runner.cleanup)
        await _run_parts(parts, clock, access, ready)


def build(config: ProxyConfig, client: Client, clock: Clock) -> Parts:
    """Return the parts, none of them running."""
    services = Informer(client, core_v1.Service, clock=clock)
    slices = Informer(client, discovery_v1.EndpointSlice, clock=clock)
    nodes = Informer(client, core_v1.Node, field_selector=f"metadata.name={config.node_name}", clock=clock)
    recorder = EventRecorder(client, "wherry-dns", config.node_name, clock=clock)
    dns = cluster_dns.build(config, client, services, slices, clock) if config.dns.enabled else None
    if dns is not None:
        _forget(dns, services, slices)
    pods = pod_side.build(config, client, recorder, config.node_name, clock, ipvs=config.mode == "ipvs")
    ranges = {family: [c for c in config.cluster_cidrs if (":" in c) == (family == 6)] for family in config.families}
    masquerade = [PodMasquerade(each, ranges[each]) for each in config.families if config.pod_network.enabled]
    return Parts(services, slices, nodes, recorder, dns, pods, masquerade)


def _forget(dns: ClusterDNS, services: Informer[core_v1.Service], slices: Informer[discovery_v1.EndpointSlice]) -> None:
    """Have answers forgotten when what they were made of changes."""

    def service_changed(change: Change[core_v1.Service]) -> None:
        found = change.new.metadata
        dns.responder.forget(f"{found.namespace}/{found.name}")

    def slice_changed(change: Change[discovery_v1.EndpointSlice]) -> None:
        for each in (change.old, change.new):
            if each is not None and (name := each.metadata.labels.get(SERVICE_NAME_LABEL)):
                dns.responder.forget(f"{each.metadata.namespace}/{name}")

    services.subscribe(service_changed)
    slices.subscribe(slice_changed)


async def _run_parts(parts: Parts, clock: Clock, access: Access, ready: Callable[[], None]) -> None:
    node_known = asyncio.Event()
    parts.nodes.subscribe(lambda change: node_known.set() if change.type != "DELETED" else None)

    async def configure(node: core_v1.Node) -> None:
        pod_cidrs = network.pod_cidrs_of(node)
        for each in parts.masquerade:
            await each.set([cidr for cidr in pod_cidrs if (":" in cidr) == (each.family == 6)])
        await parts.pods.configure(node)

    async with asyncio.TaskGroup() as group:
        for work in access.tasks:
            group.create_task(work, name="own certificate")
        group.create_task(parts.services.run(), name="follow services")
        group.create_task(parts.slices.run(), name="follow endpoint slices")
        group.create_task(parts.recorder.run(), name="send events")
        if parts.pods.pods is not None:
            await parts.pods.pods.prepare()
            # No stale table is removed where the pod network is another process' to keep: it may be in force.
            await pod_side.remove_stale(parts.pods.stale)
            group.create_task(parts.nodes.run(), name="follow the node")
            group.create_task(parts.pods.peers.run(), name="follow all nodes")
            group.create_task(
                pod_side.follow_node(parts.nodes, node_known, configure, clock), name="configure this node"
            )
            group.create_task(_keep_masquerade(parts.masquerade, clock), name="verify masquerading")
        if parts.dns is not None:
            await parts.dns.prepare()
        for name, work in (*parts.pods.tasks(clock), *(parts.dns.tasks() if parts.dns is not None else ())):
            group.create_task(work, name=name)
        group.create_task(_tell_ready(parts, clock, ready), name="readiness")


async def _keep_masquerade(tables: list[PodMasquerade], clock: Clock) -> None:
    while True:
        await clock.sleep(pod_side.CHECK_PERIOD)
        for each in tables:
            try:
                if await each.verify():
                    log.warning("what translates pods' addresses was gone: put back")
            except (WriteError, CommandError) as error:
                log.error("pods' addresses cannot be translated yet: %s", error)


async def _tell_ready(parts: Parts, clock: Clock, ready: Callable[[], None]) -> None:
    while not parts.well:
        await clock.sleep(0.05)
    ready()


async def _serve_health(config: ProxyConfig, parts: Parts) -> list[BoundedRunner]:
    """Serve /healthz, /livez and /metrics on the metrics address; the log says where that cannot be."""
    if not config.metrics_bind_address:
        return []
    host, port = host_port(config.metrics_bind_address, "metricsBindAddress")
    try:
        return [await health.serve(_app(parts), host, port)]
    except OSError as error:
        log.error("metricsBindAddress: %s: %s", config.metrics_bind_address, error.strerror)
        return []


def _app(parts: Parts) -> web.Application:
    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok") if parts.well else web.Response(status=503, text="names are not answered yet")

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    async def exposition(_: web.Request) -> web.Response:
        return web.Response(body=metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", livez)
    app.router.add_get("/metrics", exposition)
    return app
