"""Reads CNI results: each pod's device on this node, its MAC and its addresses.

The runtime's CNI library (libcni) writes each pod's result into one file when the last plugin is done, before anything of the
pod runs, and removes it with the pod. Only root writes there. A pod cannot change what the file says of it, unlike what its
own network namespace holds.

A file that cannot be read is not passed over: the pod is there, and it is not known which port and addresses are its own. Its
author shall gain nothing by that. One from before the machine's boot belongs to no pod, for no network namespace outlives that.
"""

from __future__ import annotations

import ipaddress
import os
import time
from pathlib import Path
from typing import NamedTuple

import msgspec

LARGEST = 16 << 20
"""Bytes of a result that are read. It has what the runtime passed to the plugins, in containerd all annotations: up to
256 KiB, of which Go's JSON makes six times as many at most ("<" is "\\u003c")."""
POD_UID, POD_NAMESPACE, POD_NAME = "K8S_POD_UID", "K8S_POD_NAMESPACE", "K8S_POD_NAME"
"""The arguments in which a runtime tells CNI plugins whose the network is."""


class BridgePort(NamedTuple):
    """A pod's port on the bridge: all that may come from it as a source."""

    device: str
    mac: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    broadcasts: tuple[str, ...] = ()
    """The IPv4 broadcast addresses of its networks."""
    pod_uid: str = ""
    """Empty if the runtime does not report the pod."""
    pod: str = ""
    """The pod's namespace and name, "namespace/name"."""


class UnreadableResult(NamedTuple):
    """A result without the pod's port and addresses."""

    why: str


class _Interface(msgspec.Struct):
    name: str = ""
    mac: str = ""
    sandbox: str = ""


class _Address(msgspec.Struct):
    address: str = ""
    gateway: str = ""


class _Result(msgspec.Struct):
    interfaces: list[_Interface] = []
    ips: list[_Address] = []


class _Cached(msgspec.Struct, rename={"network_name": "networkName", "arguments": "cniArgs"}):
    kind: str = ""
    network_name: str = ""
    arguments: list[tuple[str, str]] | None = None
    result: _Result = msgspec.field(default_factory=_Result)


_DECODER = msgspec.json.Decoder(_Cached)


def parse(data: bytes, network: str, bridge: str) -> BridgePort | UnreadableResult | None:
    """Read one file; None if it is of another network or bridge."""
    try:
        cached = _DECODER.decode(data)
        found = [ipaddress.ip_interface(each.address) for each in cached.result.ips]
        gateways = tuple(str(ipaddress.ip_address(each.gateway)) for each in cached.result.ips if each.gateway)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return UnreadableResult(str(error))
    if cached.network_name not in ("", network):
        return None
    addresses = tuple(str(each.ip) for each in found)
    broadcasts = tuple(str(each.network.broadcast_address) for each in found if each.version == 4)
    on_node = [each.name for each in cached.result.interfaces if not each.sandbox]
    in_pod = [each.mac.lower() for each in cached.result.interfaces if each.sandbox and each.mac]
    devices = [name for name in on_node if name and name != bridge]
    if on_node and bridge not in on_node:
        return None
    if len(devices) != 1 or len(in_pod) != 1 or not addresses:
        return UnreadableResult(f"it has {len(devices)} ports, {len(in_pod)} MACs and {len(addresses)} addresses")
    said = dict(cached.arguments or ())
    pod = f"{said.get(POD_NAMESPACE, '')}/{said.get(POD_NAME, '')}"
    return BridgePort(devices[0], in_pod[0], addresses, gateways, broadcasts, said.get(POD_UID, ""), pod.strip("/"))


class CNIResults:
    """A folder's results, each read again when it has changed. Blocking, and for one thread at a time."""

    def __init__(self, folder: Path, network: str, bridge: str) -> None:
        self._folder, self._network, self._bridge = folder, network, bridge
        self._known: dict[str, tuple[tuple[int, int, int], BridgePort | UnreadableResult | None]] = {}
        """By file name: number, size and time of the file as it was read, and its content."""

    def read_all(self) -> dict[str, BridgePort | UnreadableResult]:
        """Return the contents of all files, by name. Raise OSError if the folder cannot be listed."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            names = []
        self._known = {name: self._known[name] for name in names if name in self._known}
        return {name: found for name in names if (found := self.read(name)) is not None}

    def read(self, name: str) -> BridgePort | UnreadableResult | None:
        """Return the contents of one file; None if it is missing, or of another network or bridge."""
        if not name.startswith(f"{self._network}-"):
            return None
        try:
            with (self._folder / name).open("rb") as file:
                at = os.fstat(file.fileno())
                stamp = (at.st_ino, at.st_size, at.st_mtime_ns)
                if name not in self._known or self._known[name][0] != stamp:
                    self._known[name] = (stamp, self._parse(file.read(LARGEST + 1)))
        except FileNotFoundError:
            return None
        except OSError as error:
            return UnreadableResult(str(error.strerror))
        found = self._known[name][1]
        return None if isinstance(found, UnreadableResult) and at.st_mtime < _booted() else found

    def _parse(self, data: bytes) -> BridgePort | UnreadableResult | None:
        if len(data) > LARGEST:
            return UnreadableResult(f"it has more than {LARGEST} bytes")
        return parse(data, self._network, self._bridge)

    def addresses(self) -> dict[str, str]:
        """Return the addresses that pods have, each with the pod's UID. Raise OSError if a result is unreadable."""
        owners: dict[str, str] = {}
        for name, found in self.read_all().items():
            if isinstance(found, UnreadableResult):
                raise OSError(f"{self._folder / name}: {found.why}")
            owners |= dict.fromkeys(found.addresses, found.pod_uid)
        return owners


def _booted() -> float:
    """Return the time of the machine's boot, in seconds since the epoch."""
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
