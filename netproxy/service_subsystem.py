"""Everything that runs for Services: the proxy with a backend for each IP family, health and health check node ports."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kube.api import core_v1
from kube.clock import Clock
from kube.informer import Change
from kube.serving.aiohttp_runner import BoundedRunner
from netproxy import backend_factory, health, local_addresses, sysctl
from netproxy.api import Api
from netproxy.backend import Backend, Remover
from netproxy.config import ProxyConfig
from netproxy.families import of_family
from netproxy.gateway_sockets import GatewaySockets
from netproxy.health_check_ports import HealthCheckPorts
from netproxy.iptables.backend import IPTablesBackend
from netproxy.node_address_watcher import NodeAddressWatcher
from netproxy.podnet import network
from netproxy.proxy import ServiceProxy
from netproxy.settings import FixedChainSettings
from netproxy.tasks import Task

NODE_LIST_TIMEOUT = 10.0
"""Seconds that Services wait for the list of nodes."""


@dataclass(frozen=True, slots=True)
class ServiceSubsystem:
    """The parts, none of them running."""

    config: ProxyConfig
    mode: str
    api: Api
    proxy: ServiceProxy
    backends: list[Backend]
    settings: dict[int, FixedChainSettings]
    """The settings of fixed chains by family, before the node's pod ranges are known."""
    health: health.Health
    check_ports: HealthCheckPorts
    stale: list[Remover]
    """Removers of rules that an earlier process may have written in other modes."""

    async def serve_health(self) -> list[BoundedRunner]:
        updates = [each.count_packets for each in self.backends if isinstance(each, IPTablesBackend)]
        return await health.serve_both(self.config, self.mode, self.health, updates)

    def prepare(self) -> None:
        sysctl.apply_conntrack(self.config.conntrack)

    def tasks(self) -> Iterator[Task]:
        yield Task("proxy", self._run_proxy, restarts=False)
        yield Task("verify rules", self.proxy.verify_forever)

    async def _run_proxy(self) -> None:
        """Serve Services, once it is known which addresses are other nodes'."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(NODE_LIST_TIMEOUT):
                await self.api.nodes.wait_synced()
        await self.proxy.run()

    async def configure(self, node: core_v1.Node) -> None:
        """Change the rules that depend on the node's addresses and pod ranges, once the first rules are in force."""
        await self.proxy.started.wait()
        pod_cidrs = network.pod_cidrs_of(node)
        for each in self.backends:
            async with self.proxy.write_lock:
                if self.config.detect_local_mode == "NodeCIDR":
                    await each.set_local_cidrs(of_family(pod_cidrs, each.family), self.proxy.in_force(each))
                await each.change_fixed_chains(self._settings(each.family, node))

    def _settings(self, family: int, node: core_v1.Node) -> FixedChainSettings:
        primary = network.internal_ip(node, family)
        settings = self.settings[family]
        if primary:
            settings = backend_factory.fixed_chain_settings(self.config, family, (primary,), self.mode)
        return network.with_pods(settings, network.pod_cidrs_of(node)) if self.config.pod_network.enabled else settings

    def node_changed(self, change: Change[core_v1.Node]) -> None:
        self.health.set_node(None if change.type == "DELETED" else change.new)
        if change.type != "DELETED":
            self.proxy.changes.set_node(change.new)


async def build(
    config: ProxyConfig,
    mode: str,
    api: Api,
    clock: Clock,
    gateway_sockets: GatewaySockets,
    on_change: Callable[[str], None] | None = None,
) -> ServiceSubsystem:
    """Return the subsystem; nothing of the host has been touched. `on_change` is called with each Service that changes."""
    addresses = await local_addresses.global_addresses()
    settings = {each: backend_factory.fixed_chain_settings(config, each, addresses, mode) for each in config.families}
    chosen: list[Backend] = []
    stale: list[Remover] = []
    for family in config.families:
        backend, others = await backend_factory.build(config, mode, settings[family], addresses, clock)
        chosen.append(backend)
        stale += others
    state = health.Health(clock, config.families)
    check_ports = HealthCheckPorts(state, check_hosts(config, addresses))
    proxy = ServiceProxy(
        api.services,
        api.slices,
        chosen,
        node_name=config.node_name,
        local_cluster_ips=config.dns.addresses if config.dns.enabled else (),
        health=state,
        clock=clock,
        on_change=on_change,
        after_write=check_ports.update,
        on_written=gateway_sockets.release,
        on_repair=api.events.service_rules_repaired,
        on_port_in_use=api.events.load_balancer_port_in_use,
        on_not_served=api.events.service_not_served,
        min_period=config.min_sync_period,
    )
    subsystem = ServiceSubsystem(config, mode, api, proxy, chosen, settings, state, check_ports, stale)
    gateway_sockets.subscribe(proxy.changes.set_gateway_addresses)
    api.node.subscribe(subsystem.node_changed)
    NodeAddressWatcher(
        config.node_name,
        api.nodes,
        proxy.changes.set_other_node_address,
        proxy.changes.set_own_addresses,
        balanced=config.service_load_balancer,
    )
    return subsystem


def check_hosts(config: ProxyConfig, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return where health check node ports are served: on the node's addresses that node ports are confined to, or on all."""
    confined = [ipaddress.ip_network(each, strict=False) for each in config.node_port_addresses if each != "primary"]
    found = [ip for ip in addresses if any(ipaddress.ip_address(ip) in network for network in confined)]
    if "primary" in config.node_port_addresses:
        found += [ip for family in config.families for ip in of_family(addresses, family)[:1]]
    return tuple(dict.fromkeys(found)) or (("0.0.0.0", "::") if 6 in config.families else ("0.0.0.0",))
