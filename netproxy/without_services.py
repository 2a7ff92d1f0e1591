"""Cluster DNS, and optionally the pod network, in a process without a service proxy.

Another proxy serves the Services of this node then, or ours in a process of its own. What that proxy does with the cluster
DNS address does not matter: the Service's endpoint is the address itself (wherry/dns_service.py), which every node has, so a
packet that is translated to it stays on the node.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from aiohttp import web

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.daemon import node_daemon
from netproxy import gateway_subsystem, health, pod_subsystem, sysctl
from netproxy.api import connected
from netproxy.cleanup import remove_all
from netproxy.config import ProxyConfig
from netproxy.dns import cluster_dns
from netproxy.errors import ConfigError
from netproxy.exposition import Exposition
from netproxy.node_controller import NodeController
from netproxy.tasks import Task, start
from netproxy.validation import host_port

log = logging.getLogger(__name__)


@node_daemon
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
    async with connected(config, client, "wherry-dns", clock) as (api, renewal), contextlib.AsyncExitStack() as stack:
        dns = cluster_dns.build(config, api, clock) if config.dns.enabled else None
        pods = pod_subsystem.build(config, api, clock, ipvs=config.mode == "ipvs", own_proxy=False)
        gateway = gateway_subsystem.build(config, api, clock)
        gateway.sockets.subscribe(lambda addresses: gateway.sockets.release())
        stack.callback(gateway.sockets.close)
        node = NodeController(api.node, clock, pods.configure)

        def healthy() -> bool:
            """Return whether names are answered, and from what the API server has."""
            return dns is None or (dns.server.serving and api.services.synced and api.slices.synced)

        for runner in await _serve_health(config, healthy):
            stack.push_async_callback(runner.cleanup)
        async with asyncio.TaskGroup() as group:
            start(group, (*renewal, *api.service_tasks()), clock)
            if config.pod_network.enabled:
                await pods.prepare()
                # No stale table is removed where another process runs the pod network: it may be in force.
                await remove_all(pods.stale)
                start(group, (*api.node_tasks(), Task("configure this node", node.run)), clock)
            if dns is not None:
                dns.forget_changes(api)
                await dns.prepare()
                start(group, dns.tasks(), clock)
            start(group, pods.tasks(clock), clock)
            start(group, gateway.tasks(), clock)
            while not healthy():
                await clock.sleep(0.05)
            ready()


async def _serve_health(config: ProxyConfig, healthy: Callable[[], bool]) -> list[BoundedRunner]:
    """Serve /healthz, /livez and /metrics on the metrics address; log where that cannot be bound."""
    if not config.metrics_bind_address:
        return []
    host, port = host_port(config.metrics_bind_address, "metricsBindAddress")

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok") if healthy() else web.Response(status=503, text="names are not answered yet")

    async def livez(_: web.Request) -> web.Response:
        return web.Response(text="ok")

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/livez", livez)
    app.router.add_get("/metrics", Exposition().handle)
    try:
        return [await health.serve(app, host, port)]
    except OSError as error:
        log.error("metricsBindAddress: %s: %s", config.metrics_bind_address, error.strerror)
        return []
