"""Lets only the cluster's nodes put packets into the tunnel.

VXLAN carries no proof of its sender: whoever reaches the port could have any packet, from any pod's address, delivered to
pods, past their network policies. So what comes to the port from an address that is no node's is dropped, in a table of
nf_tables that is there while the tunnel is. The set of nodes is written whole, in one transaction, when it changes.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterable

from kube.process import CommandError, run
from netproxy.iptables.writer import nf_tables_generation
from netproxy.podnet.peers import Address

log = logging.getLogger(__name__)
TABLE = "inet wherry-tunnel"


def script(nodes: Iterable[Address], port: int) -> str:
    """Return nft's text for the table, which replaces whatever is there."""
    known = sorted(nodes, key=lambda each: (each.version, int(each)))
    sets = {}
    for family in (4, 6):
        elements = ", ".join(str(each) for each in known if each.version == family)
        sets[family] = f"elements = {{ {elements} }}; " if elements else ""
    return (
        f"table {TABLE} {{}}\ndelete table {TABLE}\ntable {TABLE} {{\n"
        f"  set nodes4 {{ type ipv4_addr; {sets[4]}}}\n"
        f"  set nodes6 {{ type ipv6_addr; {sets[6]}}}\n"
        "  chain input {\n"
        "    type filter hook input priority -10; policy accept;\n"
        f"    udp dport {port} ip saddr != @nodes4 drop\n"
        f"    udp dport {port} ip6 saddr != @nodes6 drop\n"
        "  }\n}\n"
    )


class Guard:
    """The table as last written."""

    def __init__(self) -> None:
        self._written: str | None = None
        self._generation = b""
        self._complained = False

    async def set(self, nodes: Iterable[Address], port: int) -> None:
        """Let these in. Where that fails the tunnel serves without, and the log says so."""
        text = script(nodes, port)
        if text == self._written and (self._generation == _generation() or await _present(text)):
            self._generation = _generation()
            return
        try:
            await run(["nft", "-f", "-"], input=text)
        except CommandError as error:
            if self._written is not None or not self._complained:
                log.error("anybody can send into the tunnel: %s", error)
            self._written, self._complained = None, True
            return
        self._written, self._generation, self._complained = text, _generation(), False

    async def remove(self) -> None:
        """Take the table away, where it may be there."""
        if self._written != "":
            await remove()
            self._written = ""


async def remove() -> None:
    """Take the table away; no error where there is none."""
    if shutil.which("nft") is not None:
        await run(["nft", "delete", "table", *TABLE.split()], check=False)


def _generation() -> bytes:
    try:
        return nf_tables_generation()
    except OSError:
        return b""


async def _present(text: str) -> bool:
    """Tell whether the kernel still holds the table with all that is in it."""
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
