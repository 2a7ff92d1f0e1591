"""Changes of the addresses that CNI plugins gave to this node's pods, divided by namespaces.

Whatever takes an address from a pod is one change, which waits for nothing. What gives one to a pod is a change for each
namespace, which waits for that namespace's policies: they are to be in force before, and delay no other namespace. Each is made
of what is known last, so several of one namespace are stored at once. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from netproxy.pod_addresses import Given, GivenAddresses


class AddressChange(NamedTuple):
    """The addresses that pods have after a change, those that none may use any more, and those that are used again."""

    given: GivenAddresses
    closed: Collection[str]
    opened: Collection[str]


class AddressChanges:
    """The addresses that were reported last, and those that are stored."""

    def __init__(self) -> None:
        self._reported: GivenAddresses = {}
        self._stored: GivenAddresses = {}
        self._closed = set[str]()
        self._opened: dict[str, set[str]] = {}
        """Addresses to open, by the namespace of the pod that has each; "" where none has."""

    def report(self, given: GivenAddresses, closed: Collection[str], opened: Collection[str]) -> set[str]:
        """Record addresses; return the namespaces whose pods get some. "" is among them where nobody names the pods."""
        self._reported = given
        self._closed.update(closed)
        for each in self._opened.values():
            each.difference_update(closed)
        namespaces = {ip: namespace_of(each) for each in given.values() for ip in each.addresses}
        for ip in opened:
            self._opened.setdefault(namespaces.get(ip, ""), set()).add(ip)
        changed = {namespace_of(each) for uid, each in given.items() if self._stored.get(uid) != each}
        return changed.union(self._opened).difference([""] if "" not in namespaces.values() else [])

    def taken(self) -> AddressChange:
        """Return the change that takes addresses from pods, as stored from now on."""
        stored: dict[str, Given] = {}
        for uid, old in self._stored.items():
            new = self._reported.get(uid)
            if new is not None:
                kept = new if new == old else Given(old.pod, tuple(ip for ip in old.addresses if ip in new.addresses))
                stored[uid] = kept
        self._stored, closed, self._closed = stored, self._closed, set()
        return AddressChange(stored, closed, self._opened.pop("", set()))

    def given(self, namespace: str) -> AddressChange:
        """Return the change that gives addresses to the pods of a namespace, as stored from now on; "": to all pods."""
        new = {uid: each for uid, each in self._reported.items() if namespace in ("", namespace_of(each))}
        self._stored = {**self._stored, **new}
        namespaces = list(self._opened) if not namespace else [namespace]
        opened = set[str]().union(*(self._opened.pop(each, ()) for each in namespaces))
        return AddressChange(self._stored, (), opened)


def namespace_of(given: Given) -> str:
    return given.pod.partition("/")[0]
