"""What the CNI plugins said of each pod: its device on this node, its MAC and its addresses.

The runtime's CNI library (libcni) writes each pod's result into one file when the last plugin is done, before anything of the
pod runs, and removes it with the pod. Only root writes there. A pod cannot change what the file says of it, unlike what its
own network namespace holds.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

LARGEST = 1 << 20
"""Bytes of a result that are read."""
POD_UID = "K8S_POD_UID"
"""The argument in which a runtime hands the pod's UID to CNI plugins."""


class PodPort(NamedTuple):
    """A pod's port on the bridge: all that may come from it as a source."""

    device: str
    mac: str
    addresses: tuple[str, ...]
    gateways: tuple[str, ...] = ()
    broadcasts: tuple[str, ...] = ()
    """The IPv4 broadcast addresses of its networks."""
    pod_uid: str = ""
    """Empty where the runtime does not say whose it is."""


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


def parse(data: bytes, network: str, bridge: str) -> PodPort | None:
    """Read one file; None where it is of another network, or says nothing of a port on the bridge."""
    try:
        cached = _DECODER.decode(data)
        found = [ipaddress.ip_interface(each.address) for each in cached.result.ips]
        gateways = tuple(str(ipaddress.ip_address(each.gateway)) for each in cached.result.ips if each.gateway)
    except (msgspec.DecodeError, ValueError):
        return None
    addresses = tuple(str(each.ip) for each in found)
    broadcasts = tuple(str(each.network.broadcast_address) for each in found if each.version == 4)
    if cached.network_name != network:
        return None
    on_node = [each.name for each in cached.result.interfaces if not each.sandbox]
    in_pod = [each.mac.lower() for each in cached.result.interfaces if each.sandbox and each.mac]
    devices = [name for name in on_node if name and name != bridge]
    if bridge not in on_node or len(devices) != 1 or len(in_pod) != 1 or not addresses:
        return None
    uid = dict(cached.arguments or ()).get(POD_UID, "")
    return PodPort(devices[0], in_pod[0], addresses, gateways, broadcasts, uid)


def read(file: Path, network: str, bridge: str) -> PodPort | None:
    """Read the file of one pod, None where it is gone or says nothing. Blocking."""
    try:
        with file.open("rb") as opened:
            return parse(opened.read(LARGEST), network, bridge)
    except OSError:
        return None


def read_all(folder: Path, network: str, bridge: str) -> Iterator[tuple[str, PodPort]]:
    """Yield each pod's file name and port. Blocking."""
    for file in sorted(folder.glob(f"{network}-*")):
        if (port := read(file, network, bridge)) is not None:
            yield file.name, port
