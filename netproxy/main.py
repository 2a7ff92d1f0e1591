"""The node's network role as a process: service proxy, cluster DNS and pod network on shared watches.

The order at the start is what keeps packets inside: routes for the cluster's ranges, then rules (with the guard against
packets to 127.0.0.0/8 among them), then route_localnet (localnet.py), then everything that answers. A process that ends
leaves rules, routes and addresses in force, so Services keep answering while it is replaced; DNS answers stop
for that moment, and clients ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Iterable
from functools import partial

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.serving.daemon import node_daemon
from netproxy import gateway_subsystem, localnet, modes, pod_subsystem, service_subsystem, sysctl
from netproxy.api import connected
from netproxy.backend import Remover
from netproxy.cleanup import remove_all
from netproxy.config import ProxyConfig
from netproxy.dns import cluster_dns
from netproxy.node_controller import NodeController
from netproxy.proxy import ServiceProxy
from netproxy.tasks import Task, start

log = logging.getLogger(__name__)
GC_THRESHOLDS = (20_000, 20, 50)
"""The collector's thresholds. Objects here are trees, which go by reference count; with 10 000 Services, looking for
cycles as often as Python does by default costs a quarter of the start."""


@node_daemon
async def run(
    config: ProxyConfig,
    client: Client | None = None,
    clock: Clock = SYSTEM,
    ready: Callable[[], None] = lambda: None,
) -> None:
    """Serve until cancelled; `ready` is called once the rules are in force for the first time.

    Raises ConfigError or UnsupportedModeError before anything was touched. `client` is for embedding; by default one is
    made from the configuration's kubeconfig.
    """
    gc.set_threshold(*GC_THRESHOLDS)
    mode = await modes.choose(config)
    if config.oom_score_adjust is not None:
        sysctl.adjust_oom_score(config.oom_score_adjust)
    async with connected(config, client, "kube-proxy", clock) as (api, renewal), contextlib.AsyncExitStack() as stack:
        dns = cluster_dns.build(config, api, clock) if config.dns.enabled else None
        forget = dns.responder.forget if dns is not None else None
        gateway = gateway_subsystem.build(config, api, clock)
        services = await service_subsystem.build(config, mode, api, clock, gateway.sockets, forget)
        pods = pod_subsystem.build(config, api, clock, ipvs=mode == "ipvs", nftables=mode == "nftables")
        node = NodeController(api.node, clock, services.configure, pods.configure)
        api.events.starting()
        for runner in await services.serve_health():
            stack.push_async_callback(runner.cleanup)
        stack.push_async_callback(services.check_ports.close)
        stack.push_async_callback(gateway.end, services.proxy)
        async with asyncio.TaskGroup() as group:
            # The first lists come in while the host is prepared; nothing answers and no rule is written before it is.
            start(group, (*renewal, *api.service_tasks(), *api.node_tasks()), clock)
            await pods.prepare()
            services.prepare()
            if dns is not None:
                await dns.prepare()
                start(group, dns.tasks(), clock)
            start(group, services.tasks(), clock)
            start(group, pods.tasks(clock), clock)
            start(group, gateway.tasks(), clock)
            stale = partial(_remove_stale, config, mode, services.proxy, [*services.stale, *pods.stale])
            start(group, (Task("configure this node", node.run), Task("remove stale rules", stale)), clock)
            await services.proxy.started.wait()
            ready()


async def _remove_stale(config: ProxyConfig, mode: str, proxy: ServiceProxy, stale: Iterable[Remover]) -> None:
    """Switch route_localnet on or off for node ports on 127.0.0.1; then remove what an earlier process wrote elsewhere."""
    await proxy.started.wait()
    if localnet.is_wanted(config, mode):
        localnet.switch_on()
    elif not localnet.switch_off():
        log.error("rules of another mode are kept: the guard of route_localnet is one of them")
        return
    await remove_all(stale)
