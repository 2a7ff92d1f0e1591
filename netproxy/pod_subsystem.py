"""Everything that runs for pods: CNI configuration, routes to other nodes, policies, source addresses, masquerading.

It needs no service proxy in the process. Where ours does not run, masquerade.py writes a rule that it writes otherwise.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kube.api import core_v1
from kube.clock import Clock
from netproxy.api import Api
from netproxy.backend import Remover
from netproxy.config import ProxyConfig
from netproxy.families import of_family
from netproxy.nft.writer import NftWriter
from netproxy.podnet import cni, cni_results, network
from netproxy.podnet.masquerade import PodMasquerade
from netproxy.podnet.network import PodNetwork
from netproxy.podnet.route_controller import RouteController
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.ruleset import TABLE as POLICY_TABLE
from netproxy.tasks import Task, repeat

log = logging.getLogger(__name__)
CHECK_PERIOD = 5.0
"""Seconds between checks of what others may have changed."""
POLICY_TIMEOUT = 10.0
"""Seconds that a node's first pods wait for network policies."""
NO_NFT = "the command nft is not installed (Debian: package nftables)"


@dataclass(frozen=True, slots=True)
class PodSubsystem:
    """The parts, none of them running; each is None or empty where others do its work."""

    network: PodNetwork | None
    route_controller: RouteController | None
    policy: PolicyEnforcer | None
    source_guard: SourceGuard | None
    masquerade: list[PodMasquerade]
    stale: list[Remover] = field(default_factory=list)
    """Removers of an earlier process' tables."""

    async def prepare(self) -> None:
        if self.network is not None:
            await self.network.prepare()

    async def configure(self, node: core_v1.Node) -> None:
        """Let pods start, once what guards them is in force."""
        pod_cidrs = network.pod_cidrs_of(node)
        for each in self.masquerade:
            await each.set(of_family(pod_cidrs, each.family))
        if self.policy is not None:
            self.policy.set_node_ranges(pod_cidrs)
            await self.policy.wait_started(POLICY_TIMEOUT)
        if self.source_guard is not None:
            await self.source_guard.tried.wait()
        if self.network is not None:
            await self.network.configure(node)

    def tasks(self, clock: Clock) -> Iterator[Task]:
        if self.policy is not None:
            yield "network policies", self.policy.run()
            yield "verify network policies", _verify_policies(self.policy, clock)
        if self.source_guard is not None:
            yield "guard pods' source addresses", self.source_guard.run()
        if self.network is not None:
            failure = "routes cannot be put back yet"
            yield "verify routes", repeat(self.network.verify, CHECK_PERIOD, clock, failure)
        if self.route_controller is not None:
            yield "routes to other nodes", self.route_controller.run()
        for each in self.masquerade:
            failure = "pods' addresses cannot be translated yet"
            yield "verify masquerading", repeat(each.verify, CHECK_PERIOD, clock, failure)


def build(config: ProxyConfig, api: Api, clock: Clock, *, ipvs: bool, own_proxy: bool = True) -> PodSubsystem:
    """Return the subsystem.

    `ipvs` says whether Services are served by IPVS, `own_proxy` whether our proxy in this process serves them.
    """
    settings, nft = config.pod_network, shutil.which("nft") is not None
    results, families = Path(settings.cni_results_dir), config.families
    policy = guard = None
    stale: list[Remover] = []
    masquerade: list[PodMasquerade] = []
    if nft:
        backends = [PolicyBackend(NftWriter(family, POLICY_TABLE), family, clock=clock) for family in families]
        if settings.enabled and settings.network_policy:
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
            )
        else:
            stale += backends
        guard = SourceGuard(results, settings.bridge, clock=clock)
        if not (settings.enabled and settings.source_guard):
            stale.append(guard)
            guard = None
    elif settings.enabled:
        if settings.network_policy:
            log.error("network policies are not enforced: %s", NO_NFT)
        if settings.source_guard:
            log.error("pods can send from any address: %s", NO_NFT)
    if own_proxy:
        stale += [PodMasquerade(family, ()) for family in families if nft]
    elif settings.enabled:
        masquerade = [PodMasquerade(each, of_family(config.cluster_cidrs, each), clock=clock) for each in families]
    return PodSubsystem(
        PodNetwork(config, ipvs=ipvs) if settings.enabled else None,
        RouteController(config, config.node_name, api.nodes, clock) if settings.enabled else None,
        policy,
        guard,
        masquerade,
        stale,
    )


async def _verify_policies(policy: PolicyEnforcer, clock: Clock) -> None:
    await policy.started.wait()
    await repeat(policy.verify, CHECK_PERIOD, clock, "network policies cannot be repaired yet")
