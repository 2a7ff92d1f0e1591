"""Sets up this node's pod network once the API server has given the node its pod range, and again if that changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

from kube.api import core_v1
from kube.ip_addresses import reached
from netproxy import local_addresses, sysctl
from netproxy.config import ProxyConfig
from netproxy.families import of_family
from netproxy.podnet import cluster_routes, cni, kernel_routes, node_routes, peers
from netproxy.settings import FixedChainSettings

log = logging.getLogger(__name__)


def pod_cidrs_of(node: core_v1.Node) -> tuple[str, ...]:
    """Return the node's pod ranges, one a family; empty before node IPAM has given any. Invalid ranges are ignored."""
    return tuple(str(each) for each in peers.peer_of(node).pods)


def internal_ip(node: core_v1.Node, family: int = 4) -> str:
    """Return the node's InternalIP of a family, or ""."""
    for address in node.status.addresses:
        if address.type == "InternalIP":
            with contextlib.suppress(ValueError):
                if (found := reached(address.address)).version == family:
                    return str(found)
    return ""


def ready_file(config: ProxyConfig) -> Path:
    """Return the file that allows pods to start."""
    return cni.ready_file(config.pod_network.run_dir, config.pod_network.cni_conf_dir)


class PodNetwork:
    """The node's pod network as configured; `prepare` before the node is known, `configure` each time it changes."""

    def __init__(self, config: ProxyConfig, *, ipvs: bool = False) -> None:
        self._config = config
        bridge = config.pod_network.bridge
        self._settings = sysctl.EnforcedSettings(
            sysctl.network_settings(config.families, bridge, node_routes.DEVICE, ipvs=ipvs)
        )
        self._ready_file = ready_file(config)
        self._done: tuple[object, ...] | None = None
        self._document: dict[str, Any] = {}
        """The CNI configuration, once it is written."""
        self._writing = asyncio.Lock()
        """A verification that writes last would put an earlier configuration over the new one."""
        self._source = ""
        self._own = peers.Peer("")

    async def prepare(self) -> None:
        """Switch on forwarding, and keep cluster addresses inside before the first packet is sent."""
        await self._settings.verify()
        addresses = await local_addresses.global_addresses()
        self._source = next((address for address in addresses if ":" not in address), "")
        await self._install_routes(await self._mtu(peers.Peer("")))

    async def configure(self, node: core_v1.Node) -> bool:
        """Write the CNI configuration and routes for the node's pod ranges; return whether it has any."""
        settings = self._config.pod_network
        pod_cidrs = pod_cidrs_of(node)
        if not pod_cidrs:
            return False
        self._own = peers.peer_of(node)
        mtu = await self._mtu(self._own)
        state = (pod_cidrs, internal_ip(node), mtu)
        if state == self._done:
            return True
        await self._prefer_source(internal_ip(node), mtu)
        document = cni.network_list(
            pod_cidrs,
            bridge=settings.bridge,
            mtu=mtu,
            host_ports=settings.host_ports,
            data_dir=settings.cni_data_dir,
            ready_file=self._ready_file,
        )
        async with self._writing:
            await asyncio.to_thread(cni.allow_pods, self._ready_file)
            if await asyncio.to_thread(cni.write, settings.cni_conf_dir, document):
                log.info("wrote %s/%s for %s", settings.cni_conf_dir, cni.FILE_NAME, ", ".join(pod_cidrs))
            self._done, self._document = state, document
        return True

    async def _prefer_source(self, address: str, mtu: int) -> None:
        """Let the node's connections to cluster IPs come from the address the cluster knows, if it is a local one."""
        if address in ("", self._source):
            return
        if address not in await local_addresses.global_addresses():
            log.warning("the node's address %s is not on any of its devices: keeping %s", address, self._source)
            return
        self._source = address
        await self._install_routes(mtu)

    async def verify(self) -> bool:
        """Restore kernel settings, files and routes that others changed; return whether any route had to be."""
        await self._settings.verify()
        if self._done is not None:
            await self._verify_files()
        if cluster_routes.installed((*self._config.service_cidrs, *self._config.cluster_cidrs)):
            return False
        log.warning("routes for the cluster's ranges were missing: they are added again")
        await self._install_routes(await self._mtu(self._own))
        return True

    async def _verify_files(self) -> None:
        folder = self._config.pod_network.cni_conf_dir
        try:
            async with self._writing:
                await asyncio.to_thread(cni.allow_pods, self._ready_file)
                if await asyncio.to_thread(cni.write, folder, self._document):
                    log.warning("%s/%s was removed or changed: it is written again", folder, cni.FILE_NAME)
        except OSError as error:
            log.error("the configuration of the pod network cannot be written: %s", error)

    async def _install_routes(self, mtu: int) -> None:
        config = self._config
        await cluster_routes.install(config.cluster_cidrs, config.service_cidrs, source=self._source, mtu=mtu)

    async def _mtu(self, own: peers.Peer) -> int:
        settings = self._config.pod_network
        if settings.mtu:
            return settings.mtu
        links = await kernel_routes.read_links((settings.bridge, cluster_routes.DEVICE, node_routes.DEVICE))
        uplink = node_routes.underlay(own, links)
        return node_routes.pod_mtu(
            settings.node_routes, own, uplink.mtu if uplink else await cluster_routes.uplink_mtu()
        )


def with_pods(settings: FixedChainSettings, pod_cidrs: tuple[str, ...]) -> FixedChainSettings:
    """Return the fixed chains' settings for a node that has these pod ranges."""
    cidrs = of_family(pod_cidrs, settings.family)
    return replace(settings, pod_cidrs=cidrs, cluster_cidrs=settings.cluster_cidrs or cidrs)


async def remove(config: ProxyConfig) -> None:
    """Undo what was set up: routes, the tunnel, the CNI configuration and the bridge.

    Another network's bridge may have the same name (flannel's has).
    """
    await cluster_routes.remove_routes()
    await kernel_routes.remove()
    await asyncio.to_thread(cni.remove, config.pod_network.cni_conf_dir, ready_file(config))
    if config.pod_network.enabled:
        await cluster_routes.remove_link(config.pod_network.bridge)
