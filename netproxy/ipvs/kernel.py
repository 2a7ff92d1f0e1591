"""Reads and writes virtual servers, sets and the addresses of kube-ipvs0.

Virtual servers are read from /proc/net/ip_vs, a file of the kernel's that also has each endpoint's open
connections: no program is run to look. Addresses and a few entries of sets are changed by netlink (kernel_requests.py), so
that of a change's three processes only `ipvsadm` is left.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import re
import shutil
import socket
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from kube.process import CommandError, run
from netproxy import netlink, rtnetlink_requests, sysctl
from netproxy.config import IPVSConfig
from netproxy.errors import WriteError, WriteTimeout
from netproxy.ipset import SETS, set_name
from netproxy.ipvs import kernel_requests
from netproxy.ipvs.commands import option
from netproxy.ipvs.state import Server, ServerConfig, networks, within

DEVICE = "kube-ipvs0"
PROC = Path("/proc/thread-self/net/ip_vs")
Entries = set[tuple[str, str]]


@dataclass(slots=True)
class Table:
    """The virtual servers that the kernel has; an endpoint of weight 0 is one that ends, with its open connections."""

    servers: dict[Server, ServerConfig] = field(default_factory=dict)
    draining: dict[tuple[Server, str], int] = field(default_factory=dict)


class Kernel(Protocol):
    """Reads and writes one IP family's state; every method raises WriteError if it cannot."""

    async def prepare(self) -> None: ...
    async def servers(self) -> Table: ...
    async def entries(self) -> Entries: ...
    async def addresses(self) -> set[str]: ...
    async def node_addresses(self) -> set[str]: ...
    async def change_servers(self, text: str) -> None: ...
    async def change_sets(self, text: str) -> None: ...
    async def change_addresses(self, come: set[str], gone: set[str]) -> None: ...
    async def cleanup(self) -> None: ...


class RealKernel:
    """The real one."""

    def __init__(self, family: int = 4, config: IPVSConfig = IPVSConfig()) -> None:  # noqa: B008 - frozen
        self.family, self._config = family, config

    async def prepare(self) -> None:
        """Let connection tracking see what virtual servers translate, and connections end with their endpoint."""
        for name, value in (
            ("conntrack", "1"),
            ("conn_reuse_mode", "0"),
            ("expire_nodest_conn", "1"),
            ("expire_quiescent_template", "1"),
        ):
            sysctl.ensure(f"net/ipv4/vs/{name}", value)
        config = self._config
        if config.strict_arp:
            sysctl.ensure("net/ipv4/conf/all/arp_ignore", "1")
            sysctl.ensure("net/ipv4/conf/all/arp_announce", "2")
        timeouts = [str(round(each)) for each in (config.tcp_timeout, config.tcp_fin_timeout, config.udp_timeout)]
        if any(timeout != "0" for timeout in timeouts):
            await _run("ipvsadm", "--set", *timeouts)  # 0 leaves a value as it is

    async def servers(self) -> Table:
        try:
            with PROC.open() as file:  # noqa: ASYNC230 - in memory, and of this thread's network namespace
                return await asyncio.to_thread(lambda: parse_servers(file.read(), self.family))
        except FileNotFoundError:  # the module is not loaded
            return Table()
        except OSError as error:
            raise WriteError(f"{PROC}: {error}") from error

    async def entries(self) -> Entries:
        saved = await _run("ipset", "save")
        return await asyncio.to_thread(parse_entries, saved, self.family)

    async def addresses(self) -> set[str]:
        """Return the addresses of kube-ipvs0; none where there is no such device."""
        try:
            return await self._addresses("dev", DEVICE)
        except WriteError:
            if _present():
                raise
            return set()

    async def node_addresses(self) -> set[str]:
        """Return the node's own addresses that others can use: not ours, not loopback."""
        return await self._addresses("scope", "global") - await self.addresses()

    async def _addresses(self, *which: str, families: tuple[str, ...] = ()) -> set[str]:
        found: set[str] = set()
        for family in families or (f"-{self.family}",):
            listed = json.loads(await _run("ip", "-j", family, "address", "show", *which) or "[]")
            found |= {each["local"] for link in listed for each in link.get("addr_info", ()) if each.get("local")}
        return found

    async def change_servers(self, text: str) -> None:
        await _run("ipvsadm", "--restore", input=text)

    async def change_sets(self, text: str) -> None:
        requests = await asyncio.to_thread(kernel_requests.set_requests, text, self.family)
        if requests is None:
            await _run("ipset", "restore", "-exist", input=text)
        else:
            await _send(netlink.NETFILTER, lambda: requests)

    async def change_addresses(self, come: set[str], gone: set[str]) -> None:
        if not _present():
            await _run("ip", "link", "add", DEVICE, "type", "dummy")
        device = netlink.interface_index(DEVICE)

        def changes() -> list[bytes]:
            added = [rtnetlink_requests.replace_address(ip, device) for ip in sorted(come)]
            return added + [rtnetlink_requests.delete_address(ip, device) for ip in sorted(gone)]

        await _send(netlink.ROUTE, changes, (errno.EADDRNOTAVAIL,))

    async def cleanup(self) -> None:
        """Remove this family's virtual servers, addresses and sets, whose rules must be gone before; the device goes last."""
        ours, kept = await self.addresses() | await self.node_addresses(), networks(self._config.exclude_cidrs)
        if _present():
            text = "".join(
                f"-D {option(server)} {server}\n"
                for server in (await self.servers()).servers
                if server.ip in ours and not within(server.ip, kept)
            )
            if text:
                await self.change_servers(text)
            await _run("ip", f"-{self.family}", "address", "flush", "dev", DEVICE, check=False)
            if not await self._addresses("dev", DEVICE, families=("-4", "-6")):
                await _run("ip", "link", "del", DEVICE, check=False)
        if not shutil.which("ipset"):
            return
        there = (await _run("ipset", "list", "-n", check=False)).split()
        for name in (set_name(each, self.family) for each in SETS):
            if name in there:
                await _run("ipset", "destroy", name, check=False)


async def _send(protocol: int, requests: Callable[[], list[bytes]], tolerated: Collection[int] = ()) -> None:
    try:
        await netlink.in_thread(lambda connection: netlink.apply(connection, requests(), tolerated), protocol)
    except TimeoutError as error:
        raise WriteTimeout(f"netlink: {error}") from error
    except OSError as error:
        raise WriteError(f"netlink: {error}") from error


async def _run(*argv: str, input: str = "", check: bool = True) -> str:
    try:
        return (await run(list(argv), input=input, check=check, timeout=60)).stdout
    except CommandError as error:
        raise (WriteTimeout if isinstance(error.__cause__, TimeoutError) else WriteError)(str(error)) from error


def _present() -> bool:
    """Return whether this network namespace has kube-ipvs0; raises WriteError if that cannot be read."""
    try:
        return any(name == DEVICE for _, name in socket.if_nameindex())
    except OSError as error:
        raise WriteError(f"network devices: {error}") from error


_SERVICE = re.compile(r"(TCP|UDP|SCTP)\s+(\S+):([0-9A-F]{4}) (\S+)(.*)")
_ENDPOINT = re.compile(r"\s+-> (\S+):([0-9A-F]{4})\s+\S+\s+([0-9]+)\s+([0-9]+)\s+([0-9]+)")


def parse_servers(text: str, family: int) -> Table:
    """Read /proc/net/ip_vs: IPv4 addresses in hexadecimal, IPv6 in brackets, ports in hexadecimal."""
    table = Table()
    heads: dict[Server, tuple[str, int]] = {}
    endpoints: dict[Server, list[str]] = {}
    current: Server | None = None
    for line in text.splitlines():
        if found := _SERVICE.match(line):
            ip = _address(found[2])
            current = None
            if (":" in ip) == (family == 6):
                current = Server(found[1].lower(), ip, int(found[3], 16))
                affinity = re.search(r"persistent ([0-9]+)", found[5])
                heads[current], endpoints[current] = (found[4], int(affinity[1]) if affinity else 0), []
        elif current is not None and (found := _ENDPOINT.match(line)):
            endpoint = str(Server("", _address(found[1]), int(found[2], 16)))
            if found[3] == "0":
                table.draining[current, endpoint] = int(found[4]) + int(found[5])
            else:
                endpoints[current].append(endpoint)
    table.servers = {server: ServerConfig(*head, frozenset(endpoints[server])) for server, head in heads.items()}
    return table


def parse_entries(text: str, family: int) -> Entries:
    """Read the entries of our sets from the output of `ipset save`."""
    ours = {set_name(name, family): name for name in SETS}
    found: Entries = set()
    for line in text.splitlines():
        words = line.split()
        if words[:1] == ["add"] and words[1] in ours:
            found.add((ours[words[1]], words[2]))
    return found


def _address(text: str) -> str:
    if text.startswith("["):
        return str(ipaddress.ip_address(text.strip("[]")))
    return str(ipaddress.ip_address(int(text, 16)))
