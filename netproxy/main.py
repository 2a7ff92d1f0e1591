"""The node's network role as a process: proxy, cluster DNS and pod network on one watch.

The order at the start is what keeps packets inside: routes for the cluster's ranges, then rules (with the guard against
packets to 127.0.0.0/8 among them), then route_localnet, then everything that answers. A process that ends
leaves rules, routes and addresses in force, so Services keep answering while it is replaced; DNS answers stop
for that moment, and clients ask again.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ipaddress
import logging
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

from kube import kubeconfig, servers
from kube.api import core_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.informer import Change
from kube.process import CommandError
from kube.servers import Servers
from kube.serving.aiohttp_runner import BoundedRunner
from kube.serving.daemon import daemon
from kube.transport import HttpsTransport
from netproxy import health, modes, own_certificate, sysctl
from netproxy.assembly import Parts, build, of_family, removers, static_settings
from netproxy.backend import Remover
from netproxy.config import ProxyConfig
from netproxy.errors import ConfigError, WriteError
from netproxy.iptables.static import StaticSettings
from netproxy.iptables.sync import IPTablesBackend
from netproxy.nftables.writer import NftWriter
from netproxy.podnet import kernel, network, routes
from netproxy.podnet.network import PodNetwork
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.rules import TABLE as POLICY_TABLE
from netproxy.policy.sync import PolicyBackend
from netproxy.proxy import CHECK_PERIOD, ServiceProxy

log = logging.getLogger(__name__)
RETRY = 2.0
"""Seconds before another try to set the pod network up."""
COLLECT = (20_000, 20, 50)
"""The collector's thresholds. Objects here are trees, which go by reference count; with 10 000 Services, looking for
cycles as often as Python does by default costs a quarter of the start."""
PATIENCE = 10.0
"""Seconds that a node's first pods wait for network policies, and Services for the list of nodes."""


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
    owned, renewal, known = client is None, None, None
    if client is None:
        if not config.kubeconfig:
            raise ConfigError("clientConnection.kubeconfig: required: it says where the API server is")
        access = kubeconfig.load(config.kubeconfig)
        known = Servers(access.server, servers.beside(config.kubeconfig))
        transport = HttpsTransport(access, "wherry-netproxy", known)
        client, renewal = Client(transport), own_certificate.rotation(access, transport, clock)
    runners: list[BoundedRunner] = []
    parts: Parts | None = None
    try:
        parts = await build(config, mode, client, clock)
        if known is not None:
            parts.slices.subscribe(known.changed)
        looks = [each.count_packets for each in parts.backends if isinstance(each, IPTablesBackend)]
        runners = await health.serve_both(config, mode, parts.health, looks)
        extra = [] if renewal is None else [renewal.run()]
        await _run_parts(config, mode, parts, clock, ready, extra)
    finally:
        if parts is not None:
            await parts.check_ports.close()
        for runner in runners:
            await runner.cleanup()
        if owned:
            await client.close()


async def cleanup(config: ProxyConfig, *, everything: bool = False) -> None:
    """Remove all rules of ours, in both flavours, and the ways to other nodes' pods.

    With `everything` the other routes, local addresses, the CNI configuration and the bridge too, as pods need them.
    """
    everyone: list[tuple[str, Remover]] = []
    for family in (4, 6):
        everyone += [(f"IPv{family} tables", each) for each in removers(family).values()]
        everyone.append((f"IPv{family} policies", PolicyBackend(NftWriter(family, POLICY_TABLE), family)))
    pods = config.pod_network
    everyone.append(("pods' source addresses", SourceGuard(Path(pods.cni_results_dir), pods.bridge)))
    for what, each in everyone:
        try:
            await each.cleanup()
        except (WriteError, CommandError) as error:
            log.info("nothing to remove from %s: %s", what, error)
    if config.pod_network.enabled:
        await kernel.remove()
    if everything:
        await network.remove(config)
        for address in config.dns.addresses:
            await routes.remove_local_address(address)


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
        group.create_task(parts.peers.run(), name="follow all nodes")
        group.create_task(parts.recorder.run(), name="send events")
        await _prepare(config, parts)
        group.create_task(_proxy(parts), name="proxy")
        if parts.policy is not None:
            group.create_task(parts.policy.run(), name="network policies")
            group.create_task(_keep_policies(parts.policy, clock), name="verify network policies")
        if parts.source_guard is not None:
            group.create_task(parts.source_guard.run(), name="guard pods' source addresses")
        group.create_task(parts.proxy.verify_forever(), name="verify rules")
        group.create_task(_remove_stale(parts), name="remove stale rules")
        group.create_task(_open_localnet(config, mode, parts.proxy), name="localhost node ports")
        group.create_task(_tell_ready(parts.proxy, ready), name="readiness")
        if parts.dns is not None:
            group.create_task(parts.dns.run(), name="cluster DNS")
        if parts.namespaces is not None:
            group.create_task(parts.namespaces.run(), name="follow namespaces for DNS")
        if parts.named_pods is not None:
            group.create_task(parts.named_pods.run(), name="follow pods for DNS")
        group.create_task(_follow_node(config, mode, parts, node_known, clock), name="configure this node")
        if parts.pods is not None:
            group.create_task(_keep_routes(parts.pods, clock), name="verify routes")
        if parts.mesh is not None:
            group.create_task(parts.mesh.run(), name="ways to other nodes")


async def _prepare(config: ProxyConfig, parts: Parts) -> None:
    if parts.pods is not None:
        await parts.pods.prepare()
    sysctl.apply_conntrack(config.conntrack)
    if parts.dns is not None:
        for address in config.dns.addresses:
            await routes.add_local_address(address)


async def _follow_node(config: ProxyConfig, mode: str, parts: Parts, known: asyncio.Event, clock: Clock) -> None:
    """Take in the node's pod ranges when it has them, and again whenever they change."""
    await parts.proxy.started.wait()
    while True:
        await known.wait()
        known.clear()
        try:
            for node in parts.nodes.list():
                await _configure_node(config, mode, parts, node)
        except (CommandError, WriteError, OSError) as error:
            log.error("this node is not set up yet: %s", error)
            await clock.sleep(RETRY)
            known.set()


async def _configure_node(config: ProxyConfig, mode: str, parts: Parts, node: core_v1.Node) -> None:
    """Rules before the CNI configuration: the runtime starts pods as soon as that is there."""
    pod_cidrs = network.pod_cidrs_of(node)
    for each in parts.backends:
        async with parts.proxy.exclusive():
            if config.detect_local_mode == "NodeCIDR":
                await each.set_local_cidrs(of_family(pod_cidrs, each.family), parts.proxy.in_force(each))
            await each.set_static(_settings(config, mode, parts, each.family, node))
    if parts.policy is not None:
        parts.policy.set_node_ranges(pod_cidrs)
        await parts.policy.wait_started(PATIENCE)
    if parts.source_guard is not None:
        await parts.source_guard.tried.wait()
    if parts.pods is not None:
        await parts.pods.configure(node)


def _settings(config: ProxyConfig, mode: str, parts: Parts, family: int, node: core_v1.Node) -> StaticSettings:
    """Return the fixed chains' settings, now that the node is known."""
    primary = network.internal_ip(node, family)
    settings = static_settings(config, family, (primary,), mode) if primary else parts.settings[family]
    return settings if parts.pods is None else network.with_pods(settings, network.pod_cidrs_of(node))


async def _proxy(parts: Parts) -> None:
    """Serve Services, once it is known whose addresses are whose."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            await parts.peers.wait_synced()
    await parts.proxy.run()


async def _remove_stale(parts: Parts) -> None:
    """Remove what an earlier life wrote in another mode or flavour: all of them are in force at once."""
    await parts.proxy.started.wait()
    for each in parts.stale:
        try:
            await each.cleanup()
        except (WriteError, CommandError) as error:
            log.info("nothing to remove elsewhere: %s", error)


async def _keep_policies(policy: PolicyEnforcer, clock: Clock) -> None:
    await policy.started.wait()
    while True:
        await clock.sleep(CHECK_PERIOD)
        await policy.verify()


async def _keep_routes(pods: PodNetwork, clock: Clock) -> None:
    while True:
        await clock.sleep(CHECK_PERIOD)
        try:
            await pods.verify()
        except CommandError as error:
            log.error("routes cannot be put back yet: %s", error)


async def _tell_ready(proxy: ServiceProxy, ready: Callable[[], None]) -> None:
    await proxy.started.wait()
    ready()


async def _open_localnet(config: ProxyConfig, mode: str, proxy: ServiceProxy) -> None:
    """Let 127.0.0.1 reach node ports, only once the guard is in force (CVE-2020-8558)."""
    await proxy.started.wait()
    loopback = ipaddress.ip_address("127.0.0.1")
    ranges = [cidr for cidr in config.node_port_addresses if cidr != "primary"]
    served = not config.node_port_addresses or any(loopback in ipaddress.ip_network(cidr) for cidr in ranges)
    if mode == "iptables" and config.localhost_node_ports and served:
        sysctl.ensure("net/ipv4/conf/all/route_localnet", "1")
