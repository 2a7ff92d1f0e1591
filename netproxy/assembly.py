"""Builds the role's parts from its configuration: which backends, what they are told, who hears of whose changes."""

from __future__ import annotations

import ipaddress
import logging
import shutil
from dataclasses import dataclass

from kube.api import core_v1, discovery_v1
from kube.client import Client
from kube.clock import Clock
from kube.events import NORMAL, WARNING, EventRecorder
from kube.informer import Informer
from netproxy import health, pod_side
from netproxy.backend import Backend, Remover
from netproxy.config import ProxyConfig
from netproxy.dns import cluster_dns
from netproxy.dns.cluster_dns import ClusterDNS
from netproxy.health_check_ports import HealthCheckPorts
from netproxy.iptables.settings import RuleSettings
from netproxy.iptables.static import StaticSettings
from netproxy.iptables.sync import IPTablesBackend
from netproxy.iptables.writer import RestoreWriter, choose_flavour
from netproxy.ipvs.kernel import RealKernel
from netproxy.ipvs.sync import IPVSBackend
from netproxy.nftables.sync import NFTablesBackend
from netproxy.nftables.writer import NftWriter
from netproxy.other_nodes import OtherNodes
from netproxy.pod_side import PodSide
from netproxy.podnet import routes
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.proxy import CHECK_PERIOD, ServiceProxy

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Parts:
    """Everything that runs, once built."""

    services: Informer[core_v1.Service]
    slices: Informer[discovery_v1.EndpointSlice]
    nodes: Informer[core_v1.Node]
    proxy: ServiceProxy
    backends: list[Backend]
    settings: dict[int, StaticSettings]
    health: health.Health
    check_ports: HealthCheckPorts
    recorder: EventRecorder
    pods: PodSide
    dns: ClusterDNS | None
    stale: list[Remover]
    """Where we do not write, but an earlier life may have."""


async def build(config: ProxyConfig, mode: str, client: Client, clock: Clock) -> Parts:
    """Return the parts, none of them running; nothing has been touched yet."""
    node_name = config.node_name
    services = Informer(client, core_v1.Service, clock=clock)
    slices = Informer(client, discovery_v1.EndpointSlice, clock=clock)
    nodes = Informer(client, core_v1.Node, field_selector=f"metadata.name={node_name}", clock=clock)
    state = health.Health(clock, config.families)
    addresses = await routes.node_addresses()
    settings = {family: static_settings(config, family, addresses, mode) for family in config.families}
    backends: list[Backend] = []
    stale: list[Remover] = []
    for family in config.families:
        chosen, others = await _choose(config, mode, settings[family], addresses, clock)
        backends.append(chosen)
        stale += others
    dns = cluster_dns.build(config, client, services, slices, clock) if config.dns.enabled else None
    recorder = EventRecorder(client, "kube-proxy", node_name, clock=clock)
    node = pod_side.reference(node_name)
    recorder.event(node, NORMAL, "Starting", "")
    check_ports = HealthCheckPorts(state, check_hosts(config, addresses))
    proxy = ServiceProxy(
        services,
        slices,
        backends,
        node_name=node_name,
        served_here=config.dns.addresses if config.dns.enabled else (),
        health=state,
        clock=clock,
        on_change=dns.responder.forget if dns else None,
        after_write=check_ports.update,
        on_repair=lambda: recorder.event(
            node, WARNING, "RulesRepaired", "Service rules changed by others were put back"
        ),
        on_taken=lambda service, taken: recorder.event(
            service, WARNING, "LoadBalancerPortInUse", f"{taken} on node {node_name}: the Service is not served there"
        ),
        on_left_out=lambda service, why: recorder.event(
            service, WARNING, "ServiceNotServed", f"Node {node_name} does not serve it: {why}"
        ),
        min_period=config.min_sync_period,
    )
    pods = pod_side.build(config, client, recorder, node_name, clock, ipvs=mode == "ipvs")
    stale += [*pods.stale, *(PodMasquerade(family, ()) for family in config.families if shutil.which("nft"))]
    OtherNodes(node_name, pods.peers, proxy.set_elsewhere, proxy.set_own)
    return Parts(services, slices, nodes, proxy, backends, settings, state, check_ports, recorder, pods, dns, stale)


async def _choose(
    config: ProxyConfig, mode: str, settings: StaticSettings, addresses: tuple[str, ...], clock: Clock
) -> tuple[Backend, list[Remover]]:
    """Return the backend of a family, and those that only remove what an earlier life may have left."""
    family = settings.family
    rules = RuleSettings(
        family=family,
        local_cidrs=of_family(config.cluster_cidrs, family) if config.detect_local_mode == "ClusterCIDR" else (),
        local_interface=config.local_interface,
        masquerade_all=config.masquerade_all,
        node_addresses=of_family(addresses, family),
    )
    every = removers(family)
    if mode == "nftables":
        del every["nftables"]
        return NFTablesBackend(NftWriter(family), rules, settings, clock=clock), list(every.values())
    flavour = await choose_flavour(config.iptables_flavour, family)
    log.info("IPv%d rules go to %s tables", family, flavour)
    del every[flavour]
    writer = RestoreWriter(flavour, family)
    # A look comes every CHECK_PERIOD: what it finds is then no older than the period asked for.
    period = max(config.sync_period - CHECK_PERIOD, CHECK_PERIOD)
    if mode == "ipvs":
        del every["ipvs"]
        ipvs = IPVSBackend(
            RealKernel(family, config.ipvs),
            writer,
            rules,
            settings,
            config=config.ipvs,
            period=period,
            clock=clock,
        )
        return ipvs, list(every.values())
    return IPTablesBackend(writer, rules, settings, period=period, clock=clock), list(every.values())


def removers(family: int) -> dict[str, Remover]:
    """Return what removes ours from each place where it may be; sets go last, when no rule holds them."""
    rules, settings = RuleSettings(family=family), StaticSettings(family=family)
    return {
        "nft": IPTablesBackend(RestoreWriter("nft", family), rules, settings),
        "legacy": IPTablesBackend(RestoreWriter("legacy", family), rules, settings),
        "nftables": NFTablesBackend(NftWriter(family), rules, settings),
        "ipvs": RealKernel(family),
    }


def static_settings(
    config: ProxyConfig, family: int, primary: tuple[str, ...], mode: str = "iptables"
) -> StaticSettings:
    """Return what shapes the fixed chains of a family, before the node's pod ranges are known.

    `primary` are the node's addresses, as far as known: the first of the family serves node ports where they are asked
    for on the primary address, as they are in the nftables mode unless the configuration names others (upstream's rule).
    """
    wanted = config.node_port_addresses or (("primary",) if mode == "nftables" else ())
    node_ports = tuple(cidr for cidr in wanted if cidr != "primary")
    if "primary" in wanted:
        node_ports += of_family(primary, family)[:1]
    return StaticSettings(
        family=family,
        mark=config.masquerade_mark,
        service_cidrs=of_family(config.service_cidrs, family),
        cluster_cidrs=of_family(config.cluster_cidrs, family),
        node_port_cidrs=of_family(node_ports, family),
        localhost_node_ports=config.localhost_node_ports,
        drop_invalid=not config.conntrack.tcp_be_liberal,
    )


def check_hosts(config: ProxyConfig, addresses: tuple[str, ...]) -> tuple[str, ...]:
    """Return where health check node ports are served: on the node's addresses that node ports are confined to, or on all."""
    confined = [ipaddress.ip_network(each, strict=False) for each in config.node_port_addresses if each != "primary"]
    found = [ip for ip in addresses if any(ipaddress.ip_address(ip) in network for network in confined)]
    if "primary" in config.node_port_addresses:
        found += [ip for family in config.families for ip in of_family(addresses, family)[:1]]
    return tuple(dict.fromkeys(found)) or (("0.0.0.0", "::") if 6 in config.families else ("0.0.0.0",))


def of_family(addresses: tuple[str, ...], family: int) -> tuple[str, ...]:
    return tuple(address for address in addresses if (":" in address) == (family == 6))
