"""The pod network put together: CNI configuration, ways to other nodes, policies, pods' source addresses.

It needs no service proxy beside it in the process. Where ours does not run, masquerade.py writes a rule that it writes.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kube.api import core_v1, networking_v1
from kube.client import Client
from kube.clock import Clock
from kube.events import WARNING, EventRecorder
from kube.informer import Informer
from kube.process import CommandError
from netproxy.backend import Remover
from netproxy.config import ProxyConfig
from netproxy.errors import WriteError
from netproxy.nftables.writer import NftWriter
from netproxy.podnet import cni, cni_results, network
from netproxy.podnet.mesh import Mesh
from netproxy.podnet.network import PodNetwork
from netproxy.podnet.nodes import SlimNode
from netproxy.podnet.source_guard import SourceGuard
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.ruleset import TABLE as POLICY_TABLE
from netproxy.policy.sync import PolicyBackend

log = logging.getLogger(__name__)
CHECK_PERIOD = 5.0
"""Seconds between looks at what others may have changed."""
PATIENCE = 10.0
"""Seconds that a node's first pods wait for network policies."""
RETRY = 2.0
"""Seconds before another try to set this node up."""


@dataclass(slots=True)
class PodSide:
    """What runs for pods; each part is None where it is others' to do."""

    peers: Informer[SlimNode]
    """All nodes, for the ways to their pods and their addresses."""
    pods: PodNetwork | None = None
    mesh: Mesh | None = None
    policy: PolicyEnforcer | None = None
    source_guard: SourceGuard | None = None
    stale: list[Remover] = field(default_factory=list)
    """What removes the tables of an earlier life."""

    async def configure(self, node: core_v1.Node) -> None:
        """Let pods start, once what guards them is in force."""
        if self.policy is not None:
            self.policy.set_node_ranges(network.pod_cidrs_of(node))
            await self.policy.wait_started(PATIENCE)
        if self.source_guard is not None:
            await self.source_guard.tried.wait()
        if self.pods is not None:
            await self.pods.configure(node)

    def tasks(self, clock: Clock) -> Iterator[tuple[str, Coroutine[Any, Any, None]]]:
        """Return what has to run, each with a name; `peers` is the caller's to run."""
        if self.policy is not None:
            yield "network policies", self.policy.run()
            yield "verify network policies", _keep_policies(self.policy, clock)
        if self.source_guard is not None:
            yield "guard pods' source addresses", self.source_guard.run()
        if self.pods is not None:
            yield "verify routes", _keep_routes(self.pods, clock)
        if self.mesh is not None:
            yield "ways to other nodes", self.mesh.run()


def reference(node_name: str) -> core_v1.ObjectReference:
    """Return what events of the node are about. As upstream, its name stands for its uid: `kubectl describe` asks so."""
    return core_v1.ObjectReference(kind="Node", name=node_name, uid=node_name)


def build(
    config: ProxyConfig, client: Client, recorder: EventRecorder, node_name: str, clock: Clock, *, ipvs: bool
) -> PodSide:
    """Return the parts, none of them running; `ipvs` says whether Services are served by that."""
    side = PodSide(Informer(client, SlimNode, clock=clock))
    side.policy, leftover = _network_policy(
        config,
        ipvs,
        client,
        node_name,
        clock,
        lambda: recorder.event(
            reference(node_name), WARNING, "RulesRepaired", "Network policies changed by others were put back"
        ),
        lambda policy, why: recorder.event(
            policy, WARNING, "PolicyNotEnforced", f"Pods on node {node_name} that it selects are isolated: {why}"[:1000]
        ),
    )
    side.source_guard, unguarded = _source_guard(config, clock)
    side.stale = [*leftover, *unguarded]
    if config.pod_network.enabled:
        side.pods = PodNetwork(config, ipvs=ipvs)
        side.mesh = Mesh(config, node_name, side.peers, clock)
    return side


async def follow_node(
    nodes: Informer[core_v1.Node],
    known: asyncio.Event,
    configure: Callable[[core_v1.Node], Awaitable[None]],
    clock: Clock,
) -> None:
    """Take in the node's pod ranges when it has them, and again whenever `known` says that it changed."""
    while True:
        await known.wait()
        known.clear()
        try:
            for node in nodes.list():
                await configure(node)
        except (CommandError, WriteError, OSError) as error:
            log.error("this node is not set up yet: %s", error)
            await clock.sleep(RETRY)
            known.set()


async def remove_stale(stale: list[Remover]) -> None:
    """Remove what an earlier life wrote in another mode or flavour: all of them are in force at once."""
    for each in stale:
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


def _network_policy(
    config: ProxyConfig,
    ipvs: bool,
    client: Client,
    node_name: str,
    clock: Clock,
    on_repair: Callable[[], None],
    on_failed: Callable[[networking_v1.NetworkPolicy, str], None],
) -> tuple[PolicyEnforcer | None, list[Remover]]:
    """Return the enforcer, or what removes the tables of one that ran here earlier."""
    backends = [
        PolicyBackend(NftWriter(family, POLICY_TABLE), family, clock=clock)
        for family in (config.families if shutil.which("nft") else ())
    ]
    if not (config.pod_network.enabled and config.pod_network.network_policy):
        return None, list(backends)
    if not backends:
        log.error("network policies are not enforced: the command nft is not installed (Debian: package nftables)")
        return None, []

    settings = config.pod_network
    results = cni_results.Results(Path(settings.cni_results_dir), cni.NETWORK, settings.bridge)
    enforcer = PolicyEnforcer(
        client,
        node_name,
        backends,
        bridge=settings.bridge,
        ipvs=ipvs,
        clock=clock,
        on_repair=on_repair,
        on_failed=on_failed,
        addresses_here=results.addresses,
    )
    return enforcer, []


def _source_guard(config: ProxyConfig, clock: Clock) -> tuple[SourceGuard | None, list[Remover]]:
    """Return the guard of pods' source addresses, or what removes the table of an earlier one."""
    settings = config.pod_network
    if not shutil.which("nft"):
        if settings.enabled and settings.source_guard:
            log.error("pods can send from any address: the command nft is not installed (Debian: package nftables)")
        return None, []
    guard = SourceGuard(Path(settings.cni_results_dir), settings.bridge, clock=clock)
    return (guard, []) if settings.enabled and settings.source_guard else (None, [guard])
