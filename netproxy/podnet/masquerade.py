"""Masquerades packets of this node's pods to the outside of the cluster if another proxy serves Services.

Wherry's proxy writes this rule into its own tables; other proxies do not have it. So it is in a separate table, which does
not affect the other proxy's rules. Packets that an earlier chain has translated are not masqueraded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kube.clock import SYSTEM, Clock
from netproxy.nft.commands import family_keyword
from netproxy.nft.reconciler import TableReconciler
from netproxy.nft.table import Elements
from netproxy.nft.writer import NftWriter

TABLE = "wherry-pods"
_MULTICAST = {4: "224.0.0.0/4", 6: "ff00::/8"}


class MasqueradeRules:
    """The table's desired state; `cluster` are the ranges of all pods, `pods` those of this node."""

    def __init__(self, family: int, cluster: Sequence[str]) -> None:
        self._family, self._cluster = family, tuple(cluster)
        self.table = f"{family_keyword(family)} {TABLE}"
        self.hooks = {"postrouting": "type nat hook postrouting priority srcnat; policy accept;"}
        self.declarations: Mapping[str, str] = {}
        self.elements: Elements = {}
        self.size = 0
        self.pods: tuple[str, ...] | None = None

    @property
    def chains(self) -> Mapping[str, tuple[str, ...]]:
        ip, pods = family_keyword(self._family), self.pods or ()
        inside = ", ".join((*(self._cluster or pods), _MULTICAST[self._family]))
        rules = tuple(f"{ip} saddr {cidr} {ip} daddr != {{ {inside} }} masquerade fully-random" for cidr in pods)
        return {"postrouting": rules}


class PodMasquerade(TableReconciler):
    """One IP family's table; `cluster` are the ranges of all pods."""

    def __init__(self, family: int, cluster: Sequence[str], *, clock: Clock = SYSTEM) -> None:
        self._rules = MasqueradeRules(family, cluster)
        super().__init__(NftWriter(family, TABLE), self._rules, clock)

    async def set(self, pods: Sequence[str]) -> None:
        """Set the ranges of the node to masquerade; raises WriteError."""
        if self._rules.pods != tuple(pods):
            self._rules.pods, self._needs_comparison = tuple(pods), True
        await self.write("")

    async def verify(self) -> bool:
        """Revert changes by other programs; return whether there were any."""
        return self._rules.pods is not None and await super().verify()
