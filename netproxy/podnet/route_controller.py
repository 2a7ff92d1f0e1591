"""Keeps the routes to all other nodes' pods in the kernel, as Nodes, links and the routes themselves change.

A Node is read into a few values when it changes and forgotten; heartbeats change none of them and cost nothing more. What
changed in one turn of the loop is planned together and written as a difference to what was last written. The kernel
is read only at the start, after a notification, after a refusal, and each `CHECK_PERIOD`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging

from kube import cancellation
from kube.clock import SYSTEM, Clock
from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.config import ProxyConfig
from netproxy.podnet import cluster_routes, kernel_routes, node_routes, peers
from netproxy.podnet.node_routes import NodeRoutes
from netproxy.podnet.peers import Link, Network, Peer
from netproxy.podnet.rtnetlink import RouteMonitor
from netproxy.podnet.tunnel_guard import TunnelGuard, mark_of
from netproxy.slim_objects import SlimNode

log = logging.getLogger(__name__)
CHECK_PERIOD = 30.0
"""Seconds between comparisons without a notification."""
RETRY = 2.0
PAUSE = 0.05
"""Seconds after a notice: what changes together is settled together."""
PERIOD = 0.5
"""Least seconds from one reconciliation to the next: all nodes plan all routes for each change, so a node whose address changes
all the time would cost every other one CPU time."""


class RouteController:
    """The routes of the node `name` to all others."""

    def __init__(self, config: ProxyConfig, name: str, nodes: Informer[SlimNode], clock: Clock = SYSTEM) -> None:
        self._config, self._name, self._nodes, self._clock = config, name, nodes, clock
        self._cidrs = tuple(ipaddress.ip_network(cidr) for cidr in config.cluster_cidrs)
        self._peers: dict[str, Peer] = {}
        self._links: list[Link] = []
        self._written = NodeRoutes()
        self._owners: dict[Network, str] = {}
        self._refused: frozenset[tuple[str, Network]] = frozenset()
        self._logged_unreachable: dict[str, str] = {}
        self._links_suspect = self._suspect = True
        self._wake = asyncio.Event()
        self._written_once = asyncio.Event()
        self._monitor = RouteMonitor(self._notified)
        self._guard = TunnelGuard(mark_of(config.masquerade_bit, config.pod_network.node_routes))
        nodes.subscribe(self._node_changed)

    @property
    def written(self) -> NodeRoutes:
        """The routes that were last written."""
        return self._written

    async def wait_written(self) -> None:
        """Wait until the routes to all nodes known so far have been written once."""
        await self._written_once.wait()

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

    def _notified(self, *, links: bool) -> None:
        self._links_suspect = self._links_suspect or links
        self._suspect = True
        self._wake.set()

    async def run(self) -> None:
        """Watch until cancelled; the caller runs the informer."""
        self._monitor.start()
        try:
            await self._nodes.wait_synced()
            async with asyncio.TaskGroup() as group:
                cancellation.start(group, self._check_periodically, "check routes to nodes")
                cancellation.start(group, self._follow, "write routes to nodes")
        finally:
            self._monitor.close()

    async def _check_periodically(self) -> None:
        while True:
            await self._clock.sleep(CHECK_PERIOD)
            self._notified(links=True)

    async def _follow(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self.sync()
                self._written_once.set()
            except OSError as error:
                log.error("routes to other nodes cannot be written yet: %s", error)
                self._notified(links=True)
                await self._clock.sleep(RETRY)
            await self._clock.sleep(PERIOD)
            await self._wake.wait()
            await (self._clock.sleep(PAUSE) if self._suspect else asyncio.sleep(0))

    async def sync(self) -> int:
        """Reconcile the kernel with the known nodes and links; return the number of changed entries."""
        suspect, self._suspect = self._suspect, False
        settings = self._config.pod_network
        if self._links_suspect:
            self._links_suspect = False
            self._links = await kernel_routes.read_links((settings.bridge, cluster_routes.DEVICE, node_routes.DEVICE))
        own = self._peers.get(self._name, Peer(self._name))
        wanted = node_routes.plan(
            own,
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
            # With other software's routes nodes may have addresses of the cluster's range.
            cidrs = self._cidrs if settings.node_routes != "none" else ()
            known = node_routes.accepted_addresses(own, self._peers.values(), self._links, cidrs)
            behind = [route.cidr for route in wanted.routes] if settings.node_routes == "vxlan" else []
            if not await self._guard.set(known, settings.vxlan_port, settings.bridge, behind):
                wanted = node_routes.without_tunnel(wanted)
        self._log_unreachable(wanted)
        if suspect or wanted.tunnel != self._written.tunnel:
            remade = await kernel_routes.ensure_tunnel(wanted.tunnel)
            suspect = suspect or remade
        if settings.node_routes == "host-gw":
            await self._guard.remove()
        self._monitor.follow({link.device for link in self._links}, node_routes.DEVICE if wanted.tunnel else "")
        actual = await kernel_routes.read_routes(self._config.families) if suspect else self._written
        try:
            changed = await kernel_routes.change(actual, wanted)
        except OSError:
            self._suspect = self._links_suspect = True
            raise
        if suspect and changed and wanted == self._written:
            metrics.REPAIRS.inc()
            log.warning("routes to other nodes were changed by others: repaired %d entries", changed)
        elif changed:
            log.info("routes to %d pod ranges of other nodes (%d changes)", len(wanted.routes), changed)
        self._written = wanted
        return changed

    def _log_unreachable(self, wanted: NodeRoutes) -> None:
        for name, why in wanted.unreachable.items():
            if self._logged_unreachable.get(name) != why:
                log.warning("pods of node %s cannot be reached: %s", name, why)
        self._logged_unreachable = wanted.unreachable
        metrics.NODE_CLAIMS_REFUSED.labels("pod range").inc(len(wanted.refused - self._refused))
        self._refused = wanted.refused
