"""Tells the proxy which addresses are other nodes' own, and which are this node's.

Load balancers of nodes' addresses (and whoever else publishes them) would otherwise have this node answer for its neighbours,
and take ports from its own daemons.
"""

from __future__ import annotations

from collections.abc import Callable

from kube.informer import Change, Informer
from netproxy.podnet.nodes import SlimNode


class OtherNodes:
    """Follows all nodes; `tell` hears of each address of others that comes or goes, `tell_own` of those of the one named."""

    def __init__(
        self,
        name: str,
        nodes: Informer[SlimNode],
        tell: Callable[[str, bool], None],
        tell_own: Callable[[frozenset[str]], None],
    ) -> None:
        self._name, self._tell, self._tell_own = name, tell, tell_own
        self._owners: dict[str, set[str]] = {}
        nodes.subscribe(self._changed)

    def _changed(self, change: Change[SlimNode]) -> None:
        name = change.new.metadata.name
        if name == self._name:
            if change.type != "DELETED":
                self._tell_own(frozenset(_addresses(change.new)))
            return
        before = _addresses(change.old) if change.old is not None else set()
        after = _addresses(change.new) if change.type != "DELETED" else set()
        for address in after - before:
            self._owners.setdefault(address, set()).add(name)
            self._tell(address, True)
        for address in before - after:
            # For a moment two nodes may claim an address, as when one is replaced by another.
            owners = self._owners.get(address, set())
            owners.discard(name)
            if not owners:
                self._owners.pop(address, None)
                self._tell(address, False)


def _addresses(node: SlimNode) -> set[str]:
    return {each.address for each in node.status.addresses if each.type == "InternalIP"}
