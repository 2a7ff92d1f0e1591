"""Follows which addresses the CNI plugins have given to this node's pods, and deletes the flows of former holders.

An address gets to another pod only after flows to and from it are deleted: network policies let pass what belongs to an
accepted connection, and a flow of UDP, SCTP or ICMP does not end with the pod that it led to. From its release until then
policies treat the address as nobody's, whatever a pod's status says. The node also asks anew for the address's MAC, because it
would send to the former holder's for up to 45 s.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import logging
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path

from kube import inotify
from kube.clock import SYSTEM, Clock
from netproxy import netlink
from netproxy import rtnetlink_requests as requests
from netproxy.netlink import interface_index
from netproxy.pod_addresses import Given, GivenAddresses
from netproxy.podnet import cni, cni_results
from netproxy.podnet.cni_results import BridgePort

log = logging.getLogger(__name__)

CHECK_PERIOD = 5.0
"""Seconds between checks of all results."""
RETRY = 5.0
_MASK = inotify.CLOSE_WRITE | inotify.MOVED_TO | inotify.MOVED_FROM | inotify.DELETE
MAX_RELEASED = 1 << 16
"""Released addresses that are kept. The plugin `host-local` gives out all others of a range before one of them: no IPv4 range
of a node has more, and in an IPv6 range each sandbox would add one for ever."""
Report = Callable[[GivenAddresses, Collection[str], Collection[str]], Awaitable[None]]
"""Called with all addresses, those that none may use from now on (released, or flows of former holders may still be there), and
those that may be used again. Ends when that is in force: a flow that is deleted before would be back with the next packet."""


class AddressFollower:
    """Follows libcni's folder of results. `report` is called at the start and at each change."""

    def __init__(
        self,
        folder: Path,
        bridge: str,
        report: Report,
        delete_flows: Callable[[Collection[str]], Awaitable[None]],
        *,
        clock: Clock = SYSTEM,
    ) -> None:
        self._folder, self._report, self._delete_flows, self._clock = folder, report, delete_flows, clock
        self._bridge, self._results = bridge, cni_results.CNIResults(folder, cni.NETWORK, bridge)
        self._ports: dict[str, BridgePort] | None = None
        """By file; None before the first look."""
        self._released: dict[str, None] = {}
        """The oldest first."""
        self._closed: set[str] = set()
        """Addresses whose former flows may still be there."""
        self._logged_error = ""

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                await self._follow()
            except OSError as error:
                if str(error) != self._logged_error:
                    log.error("addresses of pods are read only from their statuses: %s", error)
                self._logged_error = str(error)
                await self._clock.sleep(RETRY)

    async def _follow(self) -> None:
        with inotify.Watcher() as watcher:
            await self._watch(watcher)
            while True:
                await self._reread()
                self._logged_error = ""
                for name, _ in await watcher.wait(CHECK_PERIOD):
                    if not name:  # events were lost, or the folder is gone
                        await self._watch(watcher)

    async def _watch(self, watcher: inotify.Watcher) -> None:
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        watcher.add(self._folder, _MASK)

    async def _reread(self) -> None:
        """Read the results that changed. One that cannot be read gives no address to a pod."""
        found = await asyncio.to_thread(self._results.read_all)
        ports = {name: port for name, port in found.items() if isinstance(port, BridgePort)}
        before = ports if self._ports is None else self._ports
        # Whoever empties the folder takes no address from a pod: the plugins remove the device first.
        ports |= {name: port for name, port in before.items() if name not in ports and interface_index(port.device)}
        if ports == self._ports and not self._closed:
            return
        self._ports, given = ports, _given(ports.values())
        was, current = _holders(before), _holders(ports)
        come, gone = {ip for _, ip in current - was} | self._closed, {ip for _, ip in was - current}
        usable_again = self._release(gone, {ip for _, ip in current})
        if come or gone:
            self._closed = come | gone
            await self._report(_given(before.values()), come | gone, ())
            await self._delete_flows(come | gone)
            try:
                await delete_neighbours(self._bridge, come | gone)
            except OSError as error:
                log.warning("neighbour entries of deleted pods stay until they time out: %s", error)
        await self._report(given, (), [ip for ip in come | usable_again if ip not in self._released])
        self._closed = set()

    def _release(self, gone: Collection[str], current: Collection[str]) -> set[str]:
        """Keep addresses as released unless other pods hold them; return those that are no longer kept."""
        for ip in gone:
            self._released.pop(ip, None)
            self._released[ip] = None
        dropped = {ip for ip in current if ip in self._released}
        dropped.update(itertools.islice(self._released, max(0, len(self._released) - MAX_RELEASED)))
        for ip in dropped:
            del self._released[ip]
        return dropped | set(gone).intersection(current)


def _holders(ports: Mapping[str, BridgePort]) -> set[tuple[str, str]]:
    return {(name, ip) for name, port in ports.items() for ip in port.addresses}


def _given(ports: Collection[BridgePort]) -> dict[str, Given]:
    found: dict[str, Given] = {}
    for port in ports:
        others = found[port.pod_uid].addresses if port.pod_uid in found else ()
        found[port.pod_uid] = Given(port.pod, tuple(dict.fromkeys((*others, *port.addresses))))
    return found


async def delete_neighbours(device: str, addresses: Collection[str]) -> None:
    """Delete what the node knows of the MACs of addresses behind a device. OSError if refused."""
    index = interface_index(device)
    if index:
        await netlink.in_thread(lambda connection: _delete_neighbours(connection, index, addresses))


def _delete_neighbours(connection: socket.socket, index: int, addresses: Collection[str]) -> None:
    changes = [requests.delete_neighbour(each, index) for each in addresses]
    netlink.apply(connection, changes, (errno.ENOENT, errno.ENODEV))
