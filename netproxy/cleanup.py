"""Removes the rules, routes and files that this role has written, in every mode."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from kube.process import CommandError
from netproxy import local_addresses, localnet
from netproxy.backend import Remover
from netproxy.backend_factory import removers
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.errors import WriteError
from netproxy.nft.writer import NftWriter
from netproxy.podnet import kernel_routes, network
from netproxy.podnet.dns_guard import DNSGuard
from netproxy.podnet.loopback_guard import LoopbackGuard
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.podnet.outside_guard import OutsideGuard
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.ruleset import TABLE as POLICY_TABLE

log = logging.getLogger(__name__)
FAMILIES = (4, 6)


async def cleanup(config: ProxyConfig, *, everything: bool = False) -> None:
    """Remove all rules of ours, in both flavours, and the routes to other nodes' pods.

    With `everything` the other routes, local addresses, the CNI configuration and the bridge too, as pods need them.
    """
    await remove_services()
    await _remove_pod_rules(config.pod_network)
    if config.pod_network.enabled:
        await kernel_routes.remove()
    if everything:
        await network.remove(config)
        await remove_dns(config.dns.addresses)


async def _remove_pod_rules(pods: PodNetworkConfig) -> None:
    """Remove the tables that protect and isolate pods, and the one that masquerades them beside another proxy."""
    await remove_all(PolicyBackend(NftWriter(family, POLICY_TABLE), family) for family in FAMILIES)
    await remove_all(PodMasquerade(family, ()) for family in FAMILIES)
    guards = (
        SourceGuard(Path(pods.cni_results_dir), pods.bridge),
        DNSGuard((), pods.bridge),
        LoopbackGuard(pods.bridge),
        OutsideGuard(pods.bridge),
    )
    await remove_all(guards)


async def remove_pod_network(config: ProxyConfig) -> None:
    """Remove all of the pod network, for another one. No pod may have an address of it any more."""
    await _remove_pod_rules(config.pod_network)
    await network.remove(config)


async def remove_dns(addresses: Iterable[str]) -> None:
    """Remove the addresses of cluster DNS from the node, and their protection."""
    await remove_all([DNSGuard((), "")])
    for address in addresses:
        await local_addresses.remove_local_address(address)


async def remove_services() -> None:
    """Remove the rules of Services alone, of every mode and family, for another proxy to begin on clean tables."""
    if not localnet.switch_off():
        log.error("the rules of Services are kept: the guard of route_localnet is one of them")
        return
    for family in FAMILIES:
        await remove_all(removers(family).values())


async def remove_all(stale: Iterable[Remover]) -> None:
    """Remove the rules of each in order; what cannot be removed is logged, for often its program is not installed."""
    for each in stale:
        try:
            await each.cleanup()
        except (WriteError, CommandError, OSError) as error:
            log.info("nothing to remove: %s", error)
