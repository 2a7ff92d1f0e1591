"""The node's network role as a process: proxy, cluster DNS and pod network on one watch.

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
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import Change
from kube.process import CommandError
from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.daemon import daemon
from netproxy import health, localnet, modes, pod_side, sysctl
from netproxy.access import connected
from netproxy.assembly import Parts, build, of_family, removers, static_settings
from netproxy.backend import Remover
from netproxy.config import ProxyConfig
from netproxy.errors import WriteError
from netproxy.iptables.static import StaticSettings
from netproxy.iptables.sync import IPTablesBackend
from netproxy.nftables.writer import NftWriter
from netproxy.podnet import kernel, network, routes
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.ruleset import TABLE as POLICY_TABLE
from netproxy.policy.sync import PolicyBackend
from netproxy.proxy import ServiceProxy

log = logging.getLogger(__name__)
COLLECT = (20_000, 20, 50)
"""The collector's thresholds. Objects here are trees, which go by reference count; with 10 000 Services, looking for
cycles as often as Python does by default costs a quarter of the start."""
PATIENCE = 10.0
"""Seconds that Services wait for the list of nodes."""


@daemon
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
    gc.set_threshold(*COLLECT)
    mode = await modes.choose(config)
    if config.oom_score_adjust is not None:
        sysctl.adjust_oom_score(config.oom_score_adjust)
    async with connected(config, client, clock) as access:
        runners: list[BoundedRunner] = []
        parts: Parts | None = None
        try:
            parts = await build(config, mode, access.client, clock)
            if access.changed is not None:
                parts.slices.subscribe(access.changed)
            looks = [each.count_packets for each in parts.backends if isinstance(each, IPTablesBackend)]
            runners = await health.serve_both(config, mode, parts.health, looks)
            await _run_parts(config, mode, parts, clock, ready, access.tasks)
        finally:
            if parts is not None:
                await parts.check_ports.close()
            for runner in runners:
                await runner.cleanup()


async def cleanup(config: ProxyConfig, *, everything: bool = False) -> None:
    """Remove all rules of ours, in both flavours, and the ways to other nodes' pods.

    With `everything` the other routes, local addresses, the CNI configuration and the bridge too, as pods need them.
    """
    await remove_services()
    everyone: list[tuple[str, Remover]] = []
    for family in (4, 6):
        everyone.append((f"IPv{family} policies", PolicyBackend(NftWriter(family, POLICY_TABLE), family)))
        everyone.append((f"IPv{family} masquerading", PodMasquerade(family, ())))
    pods = config.pod_network
    everyone.append(("pods' source addresses", SourceGuard(Path(pods.cni_results_dir), pods.bridge)))
    await _remove(everyone)
    if config.pod_network.enabled:
        await kernel.remove()
    if everything:
        await network.remove(config)
        for address in config.dns.addresses:
            await routes.remove_local_address(address)


async def remove_services() -> None:
    """Remove the rules of Services alone, of every mode and family, for another proxy to begin on clean tables."""
    if not localnet.switch_off():
        log.error("the rules of Services stay, for the guard of route_localnet is among them")
        return
    await _remove([(f"IPv{family} tables", each) for family in (4, 6) for each in removers(family).values()])


async def _remove(everyone: Iterable[tuple[str, Remover]]) -> None:
    for what, each in everyone:
        try:
            await each.cleanup()
        except (WriteError, CommandError) as error:
            log.info("nothing to remove from %s: %s", what, error)


async def _run_parts(
    config: ProxyConfig,
    mode: str,
    parts: Parts,
    clock: Clock,
    ready: Callable[[], None],
    extra: Iterable[Coroutine[Any, Any, None]] = (),
) -> None:
    node_known = asyncio.Event()

    def node_changed(change: Change[core_v1.Node]) -> None:
        parts.health.set_node(None if change.type == "DELETED" else change.new)
        if change.type != "DELETED":
            parts.proxy.set_node(change.new)
            node_known.set()

    parts.nodes.subscribe(node_changed)
    async with asyncio.TaskGroup() as group:
        for work in extra:
            group.create_task(work, name="own certificate")
        # The first lists come in while the host is prepared; nothing answers and no rule is written before it is.
        group.create_task(parts.services.run(), name="follow services")
        group.create_task(parts.slices.run(), name="follow endpoint slices")
        group.create_task(parts.nodes.run(), name="follow the node")
        group.create_task(parts.pods.peers.run(), name="follow all nodes")
        group.create_task(parts.recorder.run(), name="send events")
        await _prepare(config, parts)
        group.create_task(_proxy(parts), name="proxy")
        group.create_task(parts.proxy.verify_forever(), name="verify rules")
        group.create_task(_settle_past(config, mode, parts), name="remove stale rules")
        group.create_task(_tell_ready(parts.proxy, ready), name="readiness")
        group.create_task(_follow_node(config, mode, parts, node_known, clock), name="configure this node")
        for name, work in (*parts.pods.tasks(clock), *(parts.dns.tasks() if parts.dns is not None else ())):
            group.create_task(work, name=name)


async def _prepare(config: ProxyConfig, parts: Parts) -> None:
    if parts.pods.pods is not None:
        await parts.pods.pods.prepare()
    sysctl.apply_conntrack(config.conntrack)
    if parts.dns is not None:
        await parts.dns.prepare()


async def _follow_node(config: ProxyConfig, mode: str, parts: Parts, known: asyncio.Event, clock: Clock) -> None:
    await parts.proxy.started.wait()

    async def configure(node: core_v1.Node) -> None:
        await _configure_node(config, mode, parts, node)

    await pod_side.follow_node(parts.nodes, known, configure, clock)


async def _configure_node(config: ProxyConfig, mode: str, parts: Parts, node: core_v1.Node) -> None:
    """Rules before the CNI configuration: the runtime starts pods as soon as that is there."""
    pod_cidrs = network.pod_cidrs_of(node)
    for each in parts.backends:
        async with parts.proxy.exclusive():
            if config.detect_local_mode == "NodeCIDR":
                await each.set_local_cidrs(of_family(pod_cidrs, each.family), parts.proxy.in_force(each))
            await each.set_static(_settings(config, mode, parts, each.family, node))
    await parts.pods.configure(node)


def _settings(config: ProxyConfig, mode: str, parts: Parts, family: int, node: core_v1.Node) -> StaticSettings:
    """Return the fixed chains' settings, now that the node is known."""
    primary = network.internal_ip(node, family)
    settings = static_settings(config, family, (primary,), mode) if primary else parts.settings[family]
    return settings if parts.pods.pods is None else network.with_pods(settings, network.pod_cidrs_of(node))


async def _proxy(parts: Parts) -> None:
    """Serve Services, once it is known whose addresses are whose."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await parts.pods.peers.wait_synced()
    await parts.proxy.run()


async def _settle_past(config: ProxyConfig, mode: str, parts: Parts) -> None:
    """Have 127.0.0.1 lead to node ports, or no longer, and then remove what an earlier life wrote elsewhere."""
    await parts.proxy.started.wait()
    if localnet.is_wanted(config, mode):
        localnet.switch_on()
    elif not localnet.switch_off():
        log.error("rules of another mode stay, for the guard of route_localnet is among them")
        return
    await pod_side.remove_stale(parts.stale)


async def _tell_ready(proxy: ServiceProxy, ready: Callable[[], None]) -> None:
    await proxy.started.wait()
    ready()
