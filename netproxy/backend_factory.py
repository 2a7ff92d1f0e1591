"""Builds the backend of the configured proxy mode, and removers of other modes' rules."""

from __future__ import annotations

import logging

from kube.clock import Clock
from kube.process import CommandError
from netproxy.backend import Backend, Remover
from netproxy.config import ProxyConfig
from netproxy.families import of_family
from netproxy.iptables.backend import IPTablesBackend
from netproxy.ipvs.backend import IPVSBackend
from netproxy.ipvs.kernel import RealKernel
from netproxy.nft.writer import NftWriter
from netproxy.nftables.backend import NFTablesBackend
from netproxy.proxy import CHECK_PERIOD
from netproxy.settings import FixedChainSettings, RuleSettings
from netproxy.xtables.writer import RestoreWriter, choose_flavour, installed_flavour

log = logging.getLogger(__name__)


async def build(
    config: ProxyConfig, mode: str, settings: FixedChainSettings, addresses: tuple[str, ...], clock: Clock
) -> tuple[Backend, list[Remover]]:
    """Return the backend of a family, and what removes the rules that an earlier process may have written elsewhere."""
    family = settings.family
    rules = RuleSettings(
        family=family,
        local_cidrs=of_family(config.cluster_cidrs, family) if config.detect_local_mode == "ClusterCIDR" else (),
        local_interface=config.local_interface,
        masquerade_all=config.masquerade_all,
        node_addresses=of_family(addresses, family),
    )
    others = removers(family)
    if mode == "nftables":
        del others["nftables"]
        nft = NftWriter(family, in_process=True)
        return NFTablesBackend(nft, rules, settings, clock=clock), list(others.values())
    flavour = await choose_flavour(config.iptables_flavour, family)
    log.info("IPv%d rules go to %s tables", family, flavour)
    if config.pod_network.enabled and config.pod_network.host_ports:
        await _check_host_ports(flavour, family)
    del others[flavour]
    writer = RestoreWriter(flavour, family)
    # Drift is checked every CHECK_PERIOD, so its result is not older than the configured period.
    period = max(config.sync_period - CHECK_PERIOD, CHECK_PERIOD)
    if mode == "iptables":
        return IPTablesBackend(writer, rules, settings, period=period, clock=clock), list(others.values())
    del others["ipvs"]
    kernel = RealKernel(family, config.ipvs)
    backend = IPVSBackend(kernel, writer, rules, settings, config=config.ipvs, period=period, clock=clock)
    return backend, list(others.values())


async def _check_host_ports(flavour: str, family: int) -> None:
    """Log where the plugin portmap, which calls `iptables`, writes to other tables than this process.

    Of two nat tables of iptables the kernel calls the one first that was registered last.
    """
    try:
        others = await installed_flavour(family)
    except CommandError:
        return
    if others != flavour:
        log.warning(
            "host ports of pods may get what is for Services: the CNI plugin portmap writes to %s tables, this process to "
            "%s tables; let `iptables` be %s, or use --iptables-flavour %s or the nftables mode",
            others,
            flavour,
            f"iptables-{flavour}",
            others,
        )


def removers(family: int) -> dict[str, Remover]:
    """Return what removes ours from each place where it may be; sets go last, when no rule refers to them."""
    rules, settings = RuleSettings(family=family), FixedChainSettings(family=family)
    return {
        "nft": IPTablesBackend(RestoreWriter("nft", family), rules, settings),
        "legacy": IPTablesBackend(RestoreWriter("legacy", family), rules, settings),
        "nftables": NFTablesBackend(NftWriter(family), rules, settings),
        "ipvs": RealKernel(family),
    }


def fixed_chain_settings(
    config: ProxyConfig, family: int, primary: tuple[str, ...], mode: str = "iptables"
) -> FixedChainSettings:
    """Return the settings of a family's fixed chains, before the node's pod ranges are known.

    `primary` are the node's addresses, as far as known, by which `node_port_cidrs` decides.
    """
    return FixedChainSettings(
        family=family,
        mark=config.masquerade_mark,
        service_cidrs=of_family(config.service_cidrs, family),
        cluster_cidrs=of_family(config.cluster_cidrs, family),
        node_port_cidrs=node_port_cidrs(config, family, primary, mode),
        localhost_node_ports=config.localhost_node_ports,
        drop_invalid=not config.conntrack.tcp_be_liberal,
    )


def node_port_cidrs(config: ProxyConfig, family: int, primary: tuple[str, ...], mode: str) -> tuple[str, ...]:
    """Return the ranges of local addresses that serve node ports; empty: all do.

    Without configuration the nftables mode serves them on the node's primary address, the other modes on all addresses
    (upstream's rule). Of the node's addresses `primary` the first of the family is the primary one.
    """
    wanted = config.node_port_addresses or (("primary",) if mode == "nftables" else ())
    found = tuple(cidr for cidr in wanted if cidr != "primary")
    if "primary" in wanted:
        found += of_family(primary, family)[:1]
    return of_family(found, family)
