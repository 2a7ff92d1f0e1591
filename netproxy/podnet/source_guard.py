"""Reconciles the table of pods' source addresses (source_rules.py) with the CNI results.

A pod is in the table some milliseconds after its result is there, as a rule before its first container runs; until then it
can send as no known pod. What is left of a pod that is gone harms nobody until host-local has given all other addresses
of the range, for names of devices are not used again: it is removed at the next check, not while other pods start. The table
stays in force while this role is down, and no pod starts before it was first written since the machine's boot (cni.py).

A result that cannot be read does not say whose port it is about. So while there is one, all veths of the bridge that no
result names may send nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

from kube import inotify
from kube.clock import SYSTEM, Clock
from kube.process import CommandError
from netproxy import metrics, netlink, rtnetlink_tables
from netproxy import rtnetlink_requests as requests
from netproxy.errors import WriteError
from netproxy.netlink import interface_index
from netproxy.nft.reconciler import TableReconciler
from netproxy.nft.writer import NftWriter, Writer
from netproxy.podnet import cni, cni_results, source_rules
from netproxy.podnet.cni_results import BridgePort, UnreadableResult

log = logging.getLogger(__name__)

CHECK_PERIOD = 5.0
"""Seconds between checks of the table and of all results."""
RETRY = 5.0
_MASK = inotify.CLOSE_WRITE | inotify.MOVED_TO

_FORWARD_LLDP = 1 << 0xE
"""The group_fwd_mask with which a bridge forwards LLDP's frames."""


_WORD = re.compile(r"[A-Za-z_.][\w.-]*", re.ASCII)
"""Names for nft. The CNI plugin names ports "veth" and hexadecimal digits."""


def writer(*, in_process: bool = False) -> Writer:
    """Return what writes the table."""
    return NftWriter(source_rules.FAMILY, source_rules.NAME, in_process=in_process)


class SourceGuard:
    """The table for the pods of the bridge; `folder` is where libcni keeps results."""

    def __init__(self, folder: Path, bridge: str, *, to: Writer | None = None, clock: Clock = SYSTEM) -> None:
        self._folder, self._bridge, self._clock = folder, bridge, clock
        self._results = cni_results.CNIResults(folder, cni.NETWORK, bridge)
        self._rules = source_rules.SourceRules()
        self._reconciler = TableReconciler(to or writer(), self._rules, clock)
        self._ports: dict[str, BridgePort] = {}
        self._unclear: set[str] = set()
        """Files that cannot be read."""
        self._logged: set[str] = set()
        self._logged_error = ""
        self._bridge_index = 0
        self._written_ranges: tuple[str, ...] = ()
        self._watcher: inotify.Watcher | None = None
        self.tried = asyncio.Event()
        """Set once the table is in force, or the error was logged."""

    def set_node_ranges(self, cidrs: Sequence[str]) -> None:
        """Set the ranges of addresses of this node's pods: those that a pod which is not known may use."""
        if self._rules.ranges != tuple(cidrs):
            self._rules.ranges = tuple(cidrs)
            if self._watcher is not None:
                self._watcher.notify("", 0)

    async def run(self) -> None:
        """Watch until cancelled; a failed write of the table is logged once and retried."""
        while True:
            try:
                await self._follow()
            except (WriteError, CommandError, OSError) as error:
                if str(error) != self._logged_error:
                    self._logged_error = str(error)
                    log.error("pods can send from addresses that are not theirs: %s", error)
                self.tried.set()
                await self._clock.sleep(RETRY)

    async def _follow(self) -> None:
        with inotify.Watcher() as watcher:
            self._watcher = watcher
            await self._look_anew(watcher)
            self._rules.change(self._ports, await self._closed())
            await self._write_all()
            await self._set_bridge()
            self._logged_error = ""
            self.tried.set()
            checked = self._clock.monotonic()
            while True:
                for name, _ in await watcher.wait(CHECK_PERIOD):
                    if name:
                        self._take_in(name, await asyncio.to_thread(self._results.read, name))
                    else:  # events were lost, or the folder is gone
                        await self._look_anew(watcher)
                await self._write()
                if interface_index(self._bridge) != self._bridge_index:
                    await self._set_bridge()
                if self._clock.monotonic() - checked >= CHECK_PERIOD:
                    await self._read_all()
                    await self._write()
                    await self._reconciler.verify()
                    await self._set_bridge()
                    checked = self._clock.monotonic()

    async def _look_anew(self, watcher: inotify.Watcher) -> None:
        """Watch the folder, which is made where there is none, and read all results."""
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        watcher.add(self._folder, _MASK)
        await self._read_all()

    async def _read_all(self) -> None:
        """Read all results but those of pods that are gone, or of another network namespace."""
        before, self._unclear = self._unclear, set()
        self._ports = {}
        for name, found in (await asyncio.to_thread(self._results.read_all)).items():
            self._take_in(name, found)
            if isinstance(found, UnreadableResult) and name in before - self._logged:  # it is not just being written
                log.error(
                    "%s cannot be read: no port of %s without a result may send: %s",
                    self._folder / name,
                    self._bridge,
                    found.why,
                )
                self._logged.add(name)
        self._logged &= self._unclear

    def _take_in(self, name: str, found: BridgePort | UnreadableResult | None) -> None:
        self._unclear.discard(name)
        if isinstance(found, UnreadableResult):
            self._unclear.add(name)
        elif found is not None and interface_index(found.device):
            self._ports[name] = found

    async def _closed(self) -> list[str]:
        """Return the ports that may be those of results that cannot be read. A result is written when its port is there."""
        if not self._unclear or not interface_index(self._bridge):
            return []
        names = await _veths_of(self._bridge)
        known = {port.device for port in self._ports.values()}
        return sorted(name for name in names - known if _WORD.fullmatch(name))

    async def _write(self) -> None:
        began = self._clock.monotonic()
        text = self._rules.change(self._ports, await self._closed())
        if self._written_ranges != self._rules.ranges:
            await self._write_all()
        elif text:
            await self._reconciler.write(text)
            metrics.POD_SOURCES_SYNC.observe(self._clock.monotonic() - began)

    async def _write_all(self) -> None:
        ranges = tuple(self._rules.ranges)  # others may come meanwhile
        await self._reconciler.take_over()
        self._written_ranges = ranges

    async def _set_bridge(self) -> None:
        """Stop the bridge from learning from frames to link-local groups, and have it forward LLDP's, so that they pass a hook.

        The CNI plugin makes the bridge with the first pod, so this is done whenever there is another one.
        """
        index = interface_index(self._bridge)
        if index:
            try:
                await _change_link(requests.set_bridge(index, _FORWARD_LLDP, link_local_learn=False))
            except OSError as error:
                if index != self._bridge_index:
                    log.error("pods can use each other's MAC on the bridge: %s", error)
        self._bridge_index = index

    async def cleanup(self) -> None:
        """Remove the table, and give the bridge the kernel's own options back."""
        await self._reconciler.cleanup()
        index = interface_index(self._bridge)
        if index:
            with contextlib.suppress(OSError):
                await _change_link(requests.set_bridge(index, 0, link_local_learn=True))


async def _veths_of(bridge: str) -> set[str]:
    """Return the names of the bridge's ports that are veths; OSError if they cannot be listed."""
    ports = await netlink.in_thread(lambda connection: rtnetlink_tables.ports(connection, interface_index(bridge)))
    return {each.name for each in ports if each.kind == "veth"}


async def _change_link(change: bytes) -> None:
    await netlink.in_thread(lambda connection: netlink.apply(connection, [change]))
