"""Everything that runs for pods: CNI configuration, routes to other nodes, policies, source addresses, masquerading.

It needs no service proxy in the process. Where ours does not run, masquerade.py writes a rule that it writes otherwise.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

from kube.api import core_v1
from kube.clock import Clock
from netproxy.api import Api
from netproxy.backend import Remover
from netproxy.config import PodNetworkConfig, ProxyConfig
from netproxy.families import of_family
from netproxy.nft.writer import NftWriter
from netproxy.podnet import cni, cni_results, network, source_guard
from netproxy.podnet.address_follower import AddressFollower
from netproxy.podnet.dns_guard import DNSGuard
from netproxy.podnet.loopback_guard import LoopbackGuard
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.podnet.network import PodNetwork
from netproxy.podnet.outside_guard import OutsideGuard
from netproxy.podnet.pod_flows import PodFlows
from netproxy.podnet.pod_ranges import PodRanges
from netproxy.podnet.route_controller import RouteController
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.ruleset import TABLE as POLICY_TABLE
from netproxy.tasks import Task, repeat

log = logging.getLogger(__name__)
G = TypeVar("G", bound=Remover)
CHECK_PERIOD = 5.0
"""Seconds between checks of what others may have changed."""
POLICY_TIMEOUT = 10.0
"""Seconds that a node's first pods wait for network policies."""
NO_NFT = "the command nft is not installed (Debian: package nftables)"


@dataclass(frozen=True, slots=True)
class PodSubsystem:
    """The parts, none of them running; each is None or empty where others do its work."""

    cni_conf_dir: str
    network: PodNetwork | None
    route_controller: RouteController | None
    policy: PolicyEnforcer | None
    addresses: AddressFollower | None
    source_guard: SourceGuard | None
    masquerade: list[PodMasquerade]
    dns_guard: DNSGuard | None
    loopback_guard: LoopbackGuard | None
    outside_guard: OutsideGuard | None
    stale: list[Remover] = field(default_factory=list)
    """Removers of an earlier process' tables."""

    async def prepare(self) -> None:
        if self.dns_guard is not None:
            await self.dns_guard.verify()
        if self.loopback_guard is not None:
            await self.loopback_guard.verify()
        # The Node is not known yet, and the pods of an earlier process run meanwhile.
        ranges = await asyncio.to_thread(cni.configured_ranges, self.cni_conf_dir)
        if self.outside_guard is not None:
            await self.outside_guard.set_node_ranges(ranges)
        if self.source_guard is not None:
            self.source_guard.set_node_ranges(ranges)
        if self.network is not None:
            await self.network.prepare()

    async def configure(self, node: core_v1.Node) -> None:
        """Let pods start, once what guards them is in force."""
        pod_cidrs = network.pod_cidrs_of(node)
        if self.outside_guard is not None:
            await self.outside_guard.set_node_ranges(pod_cidrs)
        for each in self.masquerade:
            await each.set(of_family(pod_cidrs, each.family))
        if self.source_guard is not None:
            self.source_guard.set_node_ranges(pod_cidrs)
        if self.policy is not None:
            self.policy.set_node_ranges(pod_cidrs)
            await self.policy.wait_started(POLICY_TIMEOUT)
        if self.source_guard is not None:
            await self.source_guard.tried.wait()
        if self.network is not None:
            await self.network.configure(node)

    def tasks(self, clock: Clock) -> Iterator[Task]:
        if self.policy is not None:
            yield Task("network policies", self.policy.run, restarts=False)
            yield Task("verify network policies", partial(_verify_policies, self.policy, clock))
        if self.addresses is not None:
            yield Task("follow addresses of pods", self.addresses.run)
        if self.source_guard is not None:
            yield Task("guard pods' source addresses", self.source_guard.run)
        if self.network is not None:
            failure = "routes cannot be repaired yet"
            yield Task("verify routes", partial(repeat, self.network.verify, CHECK_PERIOD, clock, failure))
        if self.route_controller is not None:
            yield Task("routes to other nodes", self.route_controller.run)
        if self.dns_guard is not None:
            failure = "cluster DNS cannot be guarded yet"
            yield Task(
                "verify the guard of cluster DNS", partial(repeat, self.dns_guard.verify, CHECK_PERIOD, clock, failure)
            )
        if self.loopback_guard is not None:
            failure = "loopback addresses cannot be guarded yet"
            yield Task(
                "verify the guard of loopback addresses",
                partial(repeat, self.loopback_guard.verify, CHECK_PERIOD, clock, failure),
            )
        if self.outside_guard is not None:
            failure = "pods' addresses cannot be guarded yet"
            yield Task(
                "verify the guard of pods' addresses",
                partial(repeat, self.outside_guard.verify, CHECK_PERIOD, clock, failure),
            )
        for each in self.masquerade:
            failure = "pods' addresses cannot be translated yet"
            yield Task("verify masquerading", partial(repeat, each.verify, CHECK_PERIOD, clock, failure))


def build(
    config: ProxyConfig, api: Api, clock: Clock, *, ipvs: bool, nftables: bool = False, own_proxy: bool = True
) -> PodSubsystem:
    """Return the subsystem.

    `ipvs` says whether Services are served by IPVS, `nftables` whether this process serves them in that mode and so has
    loaded libnftables, `own_proxy` whether our proxy in this process serves them.
    """
    settings, nft = config.pod_network, shutil.which("nft") is not None
    policy = addresses = guard = dns_guard = loopback_guard = outside_guard = None
    stale: list[Remover] = []
    if nft:
        policy, addresses = _policies(config, api, clock, stale, ipvs=ipvs)
        dns_guard = _dns_guard(config, stale, ipvs=ipvs)
        loopback_guard = _if_enabled(LoopbackGuard(settings.bridge), stale, enabled=settings.enabled)
        outside_guard = _if_enabled(OutsideGuard(settings.bridge), stale, enabled=settings.enabled)
        to = source_guard.writer(in_process=nftables)
        source = SourceGuard(Path(settings.cni_results_dir), settings.bridge, to=to, clock=clock)
        guard = _if_enabled(source, stale, enabled=settings.enabled and settings.source_guard)
    elif settings.enabled:
        _log_unguarded(settings)
    masquerade: list[PodMasquerade] = []
    if own_proxy:
        stale += [PodMasquerade(family, ()) for family in config.families if nft]
    elif settings.enabled:
        masquerade = [
            PodMasquerade(each, of_family(config.cluster_cidrs, each), clock=clock) for each in config.families
        ]
    return PodSubsystem(
        settings.cni_conf_dir,
        PodNetwork(config, ipvs=ipvs) if settings.enabled else None,
        RouteController(config, config.node_name, api.nodes, clock) if settings.enabled else None,
        policy,
        addresses,
        guard,
        masquerade,
        dns_guard,
        loopback_guard,
        outside_guard,
        stale,
    )


def _policies(
    config: ProxyConfig, api: Api, clock: Clock, stale: list[Remover], *, ipvs: bool
) -> tuple[PolicyEnforcer | None, AddressFollower | None]:
    """Return what enforces network policies; if they are not enforced, add the removers of their tables to `stale`."""
    settings, results = config.pod_network, Path(config.pod_network.cni_results_dir)
    backends = [PolicyBackend(NftWriter(family, POLICY_TABLE), family, clock=clock) for family in config.families]
    if not (settings.enabled and settings.network_policy):
        stale += backends
        return None, None
    flows = PodFlows()
    ranges = PodRanges(config.node_name, api.nodes, config.cluster_cidrs)
    policy = PolicyEnforcer(
        api.client,
        config.node_name,
        backends,
        bridge=settings.bridge,
        ipvs=ipvs,
        clock=clock,
        on_repair=api.events.policies_repaired,
        on_failed=api.events.policy_not_enforced,
        addresses_here=cni_results.CNIResults(results, cni.NETWORK, settings.bridge).addresses,
        delete_flows=flows.delete_between,
        node_of=ranges.node_of,
        wait_nodes=api.nodes.wait_synced,
    )
    ranges.subscribe(policy.pod_ranges_changed)
    return policy, AddressFollower(results, settings.bridge, policy.set_given_addresses, flows.delete, clock=clock)


def _dns_guard(config: ProxyConfig, stale: list[Remover], *, ipvs: bool) -> DNSGuard | None:
    """Return the guard of the cluster DNS addresses; if it must not run, add it to `stale` where it may have run before."""
    enabled = config.pod_network.enabled and bool(config.dns.addresses)
    guard = DNSGuard(config.dns.addresses, config.pod_network.bridge)
    # Also if DNS runs in another process. To IPVS a DNS address that is proxied is local, and open as any Service's.
    if enabled and (config.dns.enabled or not ipvs):
        return guard
    if config.dns.enabled or config.pod_network.enabled:
        stale.append(guard)
    return None


def _if_enabled(guard: G, stale: list[Remover], *, enabled: bool) -> G | None:
    """Return the guard if it is enabled, else add it to `stale`."""
    if enabled:
        return guard
    stale.append(guard)
    return None


def _log_unguarded(settings: PodNetworkConfig) -> None:
    """Log the protection of pods that the node lacks without the command nft."""
    if settings.network_policy:
        log.error("network policies are not enforced: %s", NO_NFT)
    log.error("cluster DNS answers machines of the node's network: %s", NO_NFT)
    log.error("pods can reach the node's loopback addresses: %s", NO_NFT)
    log.error("machines of the node's network can send with addresses of pods: %s", NO_NFT)
    if settings.source_guard:
        log.error("pods can send from any address: %s", NO_NFT)


async def _verify_policies(policy: PolicyEnforcer, clock: Clock) -> None:
    await policy.started.wait()
    await repeat(policy.verify, CHECK_PERIOD, clock, "network policies cannot be repaired yet")
