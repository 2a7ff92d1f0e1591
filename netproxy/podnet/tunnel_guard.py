"""Drops packets to the tunnel's port that are not from a node of the cluster, and those of pods.

VXLAN carries no proof of its sender: whoever reaches the port could have any packet, from any pod's address, delivered to
pods, past their network policies. So what comes to the port is dropped unless it is from a node's address to a node's.
What a pod sends leaves with its node's address, so each node drops what its pods send to another's port, by a Service too.
The table of nf_tables is there wherever the mode allows a tunnel. It is written whole, in one transaction, when it changes.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable

from kube.process import CommandError, run
from netproxy.netlink import nf_tables_generation
from netproxy.podnet.peers import Address

log = logging.getLogger(__name__)
TABLE = "inet wherry-tunnel"
_FAMILIES = ((4, "ip"), (6, "ip6"))


def script(nodes: Iterable[Address], port: int, bridge: str) -> str:
    """Return nft's text for the table, which replaces whatever is there."""
    known = sorted(nodes, key=lambda each: (each.version, int(each)))
    sets = {}
    for family in (4, 6):
        elements = ", ".join(str(each) for each in known if each.version == family)
        sets[family] = f"elements = {{ {elements} }}; " if elements else ""
    to_tunnels = [f"udp dport {port} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    foreign = [f"udp dport {port} {ip} saddr != @nodes{f} {ip} daddr @nodes{f} drop" for f, ip in _FAMILIES]
    return (
        f"table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n"
        f"  set nodes4 {{ type ipv4_addr; {sets[4]}}}\n"
        f"  set nodes6 {{ type ipv6_addr; {sets[6]}}}\n"
        + _chain(
            "input",
            [f"udp dport {port} {ip} {end} != @nodes{f} drop" for f, ip in _FAMILIES for end in ("saddr", "daddr")],
        )
        + _chain("forward", [f"{what} {to}" for to in to_tunnels for what in (f'iifname "{bridge}"', "ct status dnat")])
        # A packet that IPVS forwards leaves by this hook, from an address that is not the node's.
        + _chain("output", [*(f"ct status dnat {to}" for to in to_tunnels), *foreign])
        + "}\n"
    )


def _chain(hook: str, rules: Iterable[str]) -> str:
    lines = [f"type filter hook {hook} priority -10; policy accept;", *rules]
    return f"  chain {hook} {{\n" + "".join(f"    {line}\n" for line in lines) + "  }\n"


class TunnelGuard:
    """The table as last written."""

    def __init__(self) -> None:
        self._written: str | None = None
        self._generation = b""
        self._logged_error = ""

    async def set(self, nodes: Iterable[Address], port: int, bridge: str) -> bool:
        """Let these in, but not the pods of `bridge`; return whether the table, or the one before, is in force."""
        text = script(nodes, port, bridge)
        if text == self._written and (self._generation == nf_tables_generation() or await _present(text)):
            self._generation = nf_tables_generation()
            return True
        try:
            await run(["nft", "-f", "-"], input=text)
        except CommandError as error:
            if str(error) != self._logged_error:
                self._logged_error = str(error)
                log.error("the tunnel to other nodes cannot be guarded, and is not used without: %s", error)
            if self._written and await _present(self._written):
                return True
            self._written = None
            return False
        self._written, self._generation, self._logged_error = text, nf_tables_generation(), ""
        return True

    async def remove(self) -> None:
        """Take the table away, where it may be there."""
        if self._written != "":
            await remove()
            self._written = ""


async def remove() -> None:
    """Take the table away; no error where there is none."""
    if shutil.which("nft") is not None:
        await run(["nft", "delete", "table", *TABLE.split()], check=False)


async def _present(text: str) -> bool:
    """Return whether the kernel still holds the table with all that is in it."""
    try:
        held = (await run(["nft", "list", "table", *TABLE.split()])).stdout
    except CommandError:
        return False
    return _words(held) == _words(text[text.rindex(f"table {TABLE}") :])


def _words(text: str) -> list[str]:
    """Reduce to what matters: nft lists with other line ends and blanks than it is given."""
    for mark in ";{},":
        text = text.replace(mark, " ")
    return sorted(text.replace("priority filter - 10", "priority -10").split())
