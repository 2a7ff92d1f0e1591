"""Index of ready endpoints by Service and host label, and by address, updated incrementally.

Any number of Services may have the same pods, so what an address or a label leads to must not be found by going through
slices. An endpoint takes up to 200 bytes. Only a headless Service gives its endpoints names that an address leads back to, but
those of all are held: a Service of any number of endpoints may become headless at once. An address leads to Services, and
these to labels, so a look-up costs no label of a Service that is not headless or does not exist.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import Generic, TypeVar

from kube.api import core_v1, discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import BOTH, Host, headless, hosts_of
from netproxy.model import owner_of

K = TypeVar("K", bound=Hashable)
Name = tuple[str, str]
"""The key of a Service, and the label of an endpoint."""
MAX_SERVICES = 2_000
"""Services with an endpoint of an address that are checked for names: as many as slices, which any namespace may have."""


class _Table(Generic[K]):
    """Values of keys, each as often as it was put. One alone, the most frequent case, takes no table of its own."""

    def __init__(self) -> None:
        self._names: dict[K, str | dict[str, int]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[K]:
        return iter(self._names)

    def get(self, key: K) -> Iterable[str]:
        """Return the values of a key, each once."""
        entry = self._names.get(key)
        return () if entry is None else entry.keys() if isinstance(entry, dict) else (entry,)

    def put(self, key: K, value: str) -> bool:
        """Return whether the key did not have the value before."""
        entry = self._names.get(key)
        if entry is None:
            self._names[key] = value
            return True
        if not isinstance(entry, dict):
            entry = self._names[key] = {entry: 1}
        entry[value] = count = entry.get(value, 0) + 1
        return count == 1

    def drop(self, key: K, value: str) -> bool:
        """Return whether the key does not have the value any more."""
        entry = self._names[key]
        if isinstance(entry, dict):
            entry[value] -= 1
            if entry[value]:
                return False
            del entry[value]
            if entry:
                return True
        del self._names[key]
        return True


class EndpointIndex:
    """Follows Services and slices.

    A change of a slice costs the endpoints from the first to the last that differ; one of a Service does not cost its own.
    """

    def __init__(self, services: Informer[core_v1.Service], slices: Informer[discovery_v1.EndpointSlice]) -> None:
        self._hosts: dict[str, dict[str, _Table[str]]] = {family: {} for family in BOTH}
        self._owners: _Table[str] = _Table()
        """Address -> keys of Services, each as often as it has a label for the address."""
        self._labels: dict[str, _Table[str]] = {}
        """Key of a Service -> address -> labels."""
        self._keys: dict[str, str] = {}
        """Keys of Services with endpoints: all tables of one, also after changes, have the same text."""
        self._headless: set[str] = set()
        slices.subscribe(self._slice_changed)
        services.subscribe(self._service_changed)

    def hosts(self, key: str, families: Sequence[str], label: str | None = None) -> Iterator[Host]:
        """Iterate over the ready endpoints of a Service, those with a label where one is given; an address once a label."""
        for family in families:
            table = self._hosts[family].get(key)
            if table is not None:
                for each in table if label is None else (label,):
                    for ip in table.get(each):
                        yield Host(each, ip)

    def names_of_address(self, address: str) -> Iterator[Name]:
        """Iterate over what headless Services call an address, the first `MAX_SERVICES` with such an endpoint."""
        owners = self._owners.get(address)
        # In C: there may be many, and none of them headless.
        for key in compress(islice(owners, MAX_SERVICES), map(self._headless.__contains__, owners)):
            for label in self._labels[key].get(address):
                yield key, label

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        old, new = change.old, change.new if change.type != "DELETED" else None
        gone: Sequence[discovery_v1.Endpoint] = old.endpoints if old is not None else ()
        came: Sequence[discovery_v1.Endpoint] = new.endpoints if new is not None else ()
        if old and new and (owner_of(old), old.address_type) == (owner_of(new), new.address_type):
            gone, came = _without_common(gone, came)
        if old is not None:
            self._drop(owner_of(old), old.address_type, gone)
        if new is not None:
            self._put(owner_of(new), new.address_type, came)

    def _put(self, key: str, family: str, endpoints: Sequence[discovery_v1.Endpoint]) -> None:
        if not key or family not in BOTH or not endpoints:
            return
        key = self._keys.setdefault(key, key)
        table = self._hosts[family].setdefault(key, _Table())
        labels = self._labels.setdefault(key, _Table())
        for label, ip in hosts_of(endpoints):
            if table.put(label, ip):
                self._owners.put(ip, key)
                labels.put(ip, label)
        self._remove_empty(key, family)

    def _drop(self, key: str, family: str, endpoints: Sequence[discovery_v1.Endpoint]) -> None:
        table = self._hosts[family].get(key) if family in BOTH else None
        if table is None:
            return
        for label, ip in hosts_of(endpoints):
            if table.drop(label, ip):
                self._owners.drop(ip, key)
                self._labels[key].drop(ip, label)
        self._remove_empty(key, family)

    def _remove_empty(self, key: str, family: str) -> None:
        if not self._hosts[family][key]:
            del self._hosts[family][key]
        if not self._labels[key]:
            del self._labels[key], self._keys[key]

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        if change.type != "DELETED" and headless(change.new):
            self._headless.add(change.key)
        else:
            self._headless.discard(change.key)


def _without_common(
    old: Sequence[discovery_v1.Endpoint], new: Sequence[discovery_v1.Endpoint]
) -> tuple[Sequence[discovery_v1.Endpoint], Sequence[discovery_v1.Endpoint]]:
    """Return two sequences without what both begin and end with."""
    start, most = 0, min(len(old), len(new))
    while start < most and old[start] == new[start]:
        start += 1
    end = 0
    while end < most - start and old[-1 - end] == new[-1 - end]:
        end += 1
    return old[start : len(old) - end], new[start : len(new) - end]
