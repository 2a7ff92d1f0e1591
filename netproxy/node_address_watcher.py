"""Reports to the proxy which addresses are other nodes' own, and which are this node's.

Addresses of the built-in load balancer that are nodes' own would otherwise be answered by this node for other nodes, and take
ports from its own daemons. A Node's addresses are written by its kubelet, so an address of this node is not accepted for
another one, which could otherwise take over its load balancers, and for other load balancers none of them counts (model.py).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from kube.informer import Change, Informer
from netproxy import metrics
from netproxy.families import family_of
from netproxy.slim_objects import SlimNode

log = logging.getLogger(__name__)


class AddressChanged(Protocol):
    """Receives an address of another node, and whether a node has it."""

    def __call__(self, address: str, *, present: bool) -> None: ...


class NodeAddressWatcher:
    """Follows all nodes. `on_address` is called for each address of another node that comes or goes."""

    def __init__(
        self,
        name: str,
        nodes: Informer[SlimNode],
        on_address: AddressChanged,
        on_own_addresses: Callable[[frozenset[str]], None],
        *,
        balanced: bool = True,
    ) -> None:
        """`balanced`: load balancers may have nodes' addresses; otherwise no address of another node counts."""
        self._balanced = balanced
        self._name, self._on_address, self._on_own_addresses = name, on_address, on_own_addresses
        self._owners: dict[str, set[str]] = {}
        self._own_addresses: frozenset[str] = frozenset()
        nodes.subscribe(self._changed)

    def _changed(self, change: Change[SlimNode]) -> None:
        name = change.new.metadata.name
        if name == self._name:
            if change.type != "DELETED":
                self._set_own(frozenset(_own_addresses(change.new)))
            return
        if not self._balanced:
            return
        before = _addresses(change.old) if change.old is not None else set()
        after = _addresses(change.new) if change.type != "DELETED" else set()
        for address in after - before:
            self._owners.setdefault(address, set()).add(name)
            if address in self._own_addresses:
                _log_refused(name, address)
            else:
                self._on_address(address, present=True)
        for address in before - after:
            # For a moment two nodes may claim an address, as when one is replaced by another.
            owners = self._owners.get(address, set())
            owners.discard(name)
            if not owners:
                self._owners.pop(address, None)
                if address not in self._own_addresses:
                    self._on_address(address, present=False)

    def _set_own(self, addresses: frozenset[str]) -> None:
        """Store this node's addresses; take back those that another node claimed before they were known."""
        before, self._own_addresses = self._own_addresses, addresses
        for address in addresses - before:
            for name in sorted(self._owners.get(address, ())):
                _log_refused(name, address)
                self._on_address(address, present=False)
        for address in before - addresses:
            if address in self._owners:
                self._on_address(address, present=True)
        self._on_own_addresses(addresses)


def _log_refused(name: str, address: str) -> None:
    metrics.NODE_CLAIMS_REFUSED.labels("address").inc()
    log.warning("node %s names the address %s, which belongs to this node: it is not accepted", name, address)


def _addresses(node: SlimNode) -> set[str]:
    """Return the first InternalIP of each family: those that the built-in load balancer gives to Services.

    A node that names further ones, such as the virtual address of another load balancer, takes them from no other node.
    """
    found: dict[int, str] = {}
    for each in node.status.addresses:
        if each.type == "InternalIP":
            found.setdefault(family_of(each.address), each.address)
    return set(found.values())


def _own_addresses(node: SlimNode) -> set[str]:
    return {each.address for each in node.status.addresses if each.type == "InternalIP"}
