"""Keeps the ways to all other nodes' pods in the kernel: follows the Nodes, this node's links, and who meddles.

A Node is read into a few values when it changes and forgotten; heartbeats change none of them and cost nothing more. What
changed in one turn of the loop is planned together and written as a difference to what was last written. The kernel
is read only at the start, after a notice, after a refusal, and now and then.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from kube.clock import SYSTEM, Clock
from kube.informer import Change, Informer
from kube.process import CommandError
from netproxy import metrics
from netproxy.config import ProxyConfig
from netproxy.podnet import kernel, peers, routes, ways
from netproxy.podnet.guard import Guard
from netproxy.podnet.monitor import Monitor
from netproxy.podnet.nodes import SlimNode
from netproxy.podnet.peers import Link, Network, Peer
from netproxy.podnet.ways import Ways

log = logging.getLogger(__name__)
CHECK_PERIOD = 30.0
"""Seconds between comparisons that nothing gave cause for."""
RETRY = 2.0
PAUSE = 0.05
"""Seconds after a notice: what changes together is settled together."""


class Mesh:
    """The ways of the node `name` to all others."""

    def __init__(self, config: ProxyConfig, name: str, nodes: Informer[SlimNode], clock: Clock = SYSTEM) -> None:
        self._config, self._name, self._nodes, self._clock = config, name, nodes, clock
        self._cidrs = tuple(ipaddress.ip_network(cidr) for cidr in config.cluster_cidrs)
        self._peers: dict[str, Peer] = {}
        self._links: list[Link] = []
        self._held = Ways()
        self._owners: dict[Network, str] = {}
        self._refused: frozenset[tuple[str, Network]] = frozenset()
        self._complained: dict[str, str] = {}
        self._links_suspect = self._suspect = True
        self._wake = asyncio.Event()
        self._settled = asyncio.Event()
        self._monitor = Monitor(self._noticed)
        self._guard = Guard()
        nodes.subscribe(self._node_changed)

    @property
    def held(self) -> Ways:
        """What was last written."""
        return self._held

    async def wait_settled(self) -> None:
        """Wait until the ways to all nodes known so far have been written once."""
        await self._settled.wait()

    def _node_changed(self, change: Change[SlimNode]) -> None:
        name = change.new.metadata.name or ""
        if change.type == "DELETED":
            self._peers.pop(name, None)
        else:
            peer = peers.peer_of(change.new)
            if self._peers.get(name) == peer:
                return
            self._peers[name] = peer
        self._wake.set()

    def _noticed(self, links: bool) -> None:
        self._links_suspect = self._links_suspect or links
        self._suspect = True
        self._wake.set()

    async def run(self) -> None:
        """Follow until cancelled; the informer is run by whoever made it."""
        self._monitor.start()
        try:
            await self._nodes.wait_synced()
            async with asyncio.TaskGroup() as group:
                group.create_task(self._check_now_and_then(), name="check ways to nodes")
                group.create_task(self._follow(), name="write ways to nodes")
        finally:
            self._monitor.close()

    async def _check_now_and_then(self) -> None:
        while True:
            await self._clock.sleep(CHECK_PERIOD)
            self._noticed(True)

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.sync()
                self._settled.set()
            except CommandError as error:
                log.error("the ways to other nodes are behind: %s", error)
                self._noticed(True)
                await self._clock.sleep(RETRY)
            await self._wake.wait()
            await (self._clock.sleep(PAUSE) if self._suspect else asyncio.sleep(0))

    async def sync(self) -> int:
        """Bring the kernel to what the nodes and links known say; return how many entries changed."""
        suspect, self._suspect = self._suspect, False
        settings = self._config.pod_network
        if self._links_suspect:
            self._links_suspect = False
            self._links = await kernel.read_links((settings.bridge, routes.DEVICE, ways.DEVICE))
        wanted = ways.plan(
            self._peers.get(self._name, Peer(self._name)),
            self._peers.values(),
            self._links,
            mode=settings.node_routes,
            cluster_cidrs=self._cidrs,
            port=settings.vxlan_port,
            vni=settings.vxlan_id,
            owners=self._owners,
        )
        self._owners = wanted.owners
        # The guard comes before the tunnel, and nodes without one keep their pods from the tunnels of others.
        if settings.node_routes != "host-gw":
            known = (address for peer in self._peers.values() for address in peer.addresses)
            if not await self._guard.set(known, settings.vxlan_port, settings.bridge):
                wanted = ways.without_tunnel(wanted)
        self._complain(wanted)
        if suspect or wanted.tunnel != self._held.tunnel:
            remade = await kernel.ensure_tunnel(wanted.tunnel)
            suspect = suspect or remade
        if settings.node_routes == "host-gw":
            await self._guard.remove()
        self._monitor.follow({link.device for link in self._links}, ways.DEVICE if wanted.tunnel else "")
        held = await kernel.read_ways(self._config.families) if suspect else self._held
        try:
            changed = await kernel.change(held, wanted)
        except CommandError:
            self._suspect = self._links_suspect = True
            raise
        if suspect and changed and wanted == self._held:
            metrics.REPAIRS.inc()
            log.warning("ways to other nodes were changed by others: %d entries put back", changed)
        elif changed:
            log.info("ways to %d pod ranges of other nodes (%d changes)", len(wanted.routes), changed)
        self._held = wanted
        return changed

    def _complain(self, wanted: Ways) -> None:
        for name, why in wanted.unreached.items():
            if self._complained.get(name) != why:
                log.warning("pods of node %s cannot be reached: %s", name, why)
        self._complained = wanted.unreached
        metrics.NODE_CLAIMS_REFUSED.labels("pod range").inc(len(wanted.refused - self._refused))
        self._refused = wanted.refused
