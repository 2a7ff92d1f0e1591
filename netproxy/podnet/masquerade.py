"""Translates what this node's pods send outside to the node's address, where another proxy serves Services.

Our own proxy has this rule among its own, in whichever tables it writes; no other proxy has. It is in a table of its own then,
so that nothing of the other proxy's is touched. What an earlier chain translated passes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from netproxy.nftables import chains
from netproxy.nftables.writer import NftWriter, Writer

TABLE = "wherry-pods"
_MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}


def script(family: int, pods: Sequence[str], cluster: Sequence[str]) -> str:
    """Return nft's text for the table, which replaces whatever is there: pods' ranges of the node and of the cluster."""
    ip, table = chains.word(family), f"{chains.word(family)} {TABLE}"
    inside = ", ".join((*(cluster or pods), _MULTICAST[family]))
    rules = "".join(f"    {ip} saddr {cidr} {ip} daddr != {{ {inside} }} masquerade fully-random\n" for cidr in pods)
    hook = "type nat hook postrouting priority srcnat; policy accept;"
    return f"table {table} {{}}\ndelete table {table}\ntable {table} {{\n  chain postrouting {{\n    {hook}\n{rules}  }}\n}}\n"


class PodMasquerade:
    """One IP family's table as last written; `cluster` are the ranges of all pods."""

    def __init__(self, family: int, cluster: Sequence[str], to: Writer | None = None) -> None:
        self.family, self._cluster = family, tuple(cluster)
        self._writer = to or NftWriter(family, TABLE)
        self._text = ""
        self._described: dict[str, list[Any]] = {}
        self._seen = b""

    async def set(self, pods: Sequence[str]) -> None:
        """Have these ranges of the node translated; WriteError where that cannot be written."""
        text = script(self.family, pods, self._cluster)
        if text != self._text:
            await self._write(text)

    async def verify(self) -> bool:
        """Write the table again where others changed it; return whether that was so."""
        seen = self._writer.fingerprint()
        if not self._text or (seen and seen == self._seen):
            return False
        self._seen = seen
        if await self._writer.describe() == self._described:
            return False
        await self._write(self._text)
        return True

    async def _write(self, text: str) -> None:
        await self._writer.apply(text)
        self._text, self._seen = text, self._writer.fingerprint()
        self._described = await self._writer.describe()

    async def cleanup(self) -> None:
        """Remove the table, where there is one."""
        if await self._writer.exists():
            await self._writer.apply(f"delete table {chains.word(self.family)} {TABLE}\n")
