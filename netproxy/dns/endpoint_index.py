"""Ready endpoints by Service and host label, and by address, kept current change by change.

Any number of Services may have the same pods, so what an address or a label leads to must not be found by going through
slices. An endpoint takes 40 to 200 bytes, up to 270 where its Service is headless: only such a Service gives its endpoints
names that an address leads back to.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from sys import intern
from typing import Generic, TypeVar

from kube.api import core_v1, discovery_v1
from kube.informer import Change, Informer
from netproxy.dns.endpoints import BOTH, Host, headless, hosts
from netproxy.model import owner_of

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", str, tuple[str, str])
Name = tuple[str, str]
"""The key of a headless Service, and the label of an endpoint."""
_Relation = tuple[str, str, str, str]
"""Family, key of the Service, label and address of a ready endpoint in a slice."""


class _Table(Generic[K, V]):
    """Values of keys, each as often as it was put. One alone, the most frequent case, takes no table of its own."""

    def __init__(self) -> None:
        self._held: dict[K, V | dict[V, int]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[K]:
        return iter(self._held)

    def get(self, key: K) -> Iterable[V]:
        """Return the values of a key, each once."""
        held = self._held.get(key)
        return () if held is None else held.keys() if isinstance(held, dict) else (held,)

    def put(self, key: K, value: V) -> None:
        held = self._held.get(key)
        if held is None:
            self._held[key] = value
            return
        if not isinstance(held, dict):
            held = self._held[key] = {held: 1}
        held[value] = held.get(value, 0) + 1

    def drop(self, key: K, value: V) -> None:
        held = self._held[key]
        if isinstance(held, dict):
            held[value] -= 1
            if not held[value]:
                del held[value]
            if held:
                return
        del self._held[key]


class EndpointIndex:
    """Follows Services and slices. A change of a slice costs what it holds; one that makes a Service headless, its slices."""

    def __init__(
        self, services: Informer[core_v1.Service], slices: Informer[discovery_v1.EndpointSlice], by_service: str
    ) -> None:
        """`by_service` is the index of the slices by their Service's key."""
        self._slices, self._by_service = slices, by_service
        self._hosts: dict[str, dict[str, _Table[str, str]]] = {family: {} for family in BOTH}
        self._names: _Table[str, Name] = _Table()
        self._headless: set[str] = set()
        slices.subscribe(self._slice_changed)
        services.subscribe(self._service_changed)

    def hosts(self, key: str, families: Sequence[str], label: str | None = None) -> Iterator[Host]:
        """Go through the ready endpoints of a Service, those with a label where one is given; an address once a label."""
        for family in families:
            table = self._hosts[family].get(key)
            if table is not None:
                for each in table if label is None else (label,):
                    for ip in table.get(each):
                        yield Host(each, ip)

    def names(self, address: str) -> Iterable[Name]:
        """Return what headless Services call an address."""
        return self._names.get(address)

    def _slice_changed(self, change: Change[discovery_v1.EndpointSlice]) -> None:
        old = _relations(change.old) if change.old is not None else set()
        new = _relations(change.new) if change.type != "DELETED" else set()
        for family, key, label, ip in old - new:
            table = self._hosts[family][key]
            table.drop(label, ip)
            if not table:
                del self._hosts[family][key]
            if key in self._headless:
                self._names.drop(ip, (key, label))
        for family, key, label, ip in new - old:
            # The same label and address of many Services are one string, also when slices are replaced.
            table = self._hosts[family].setdefault(intern(key), _Table())
            table.put(intern(label), intern(ip))
            if key in self._headless:
                self._names.put(intern(ip), (intern(key), intern(label)))

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        key = change.key
        now = change.type != "DELETED" and headless(change.new)
        if now == (key in self._headless):
            return
        (self._headless.add if now else self._headless.discard)(key)
        for slice_ in self._slices.by_index(self._by_service, key):
            for _, _, label, ip in _relations(slice_):
                if now:
                    self._names.put(intern(ip), (intern(key), intern(label)))
                else:
                    self._names.drop(ip, (key, label))


def _relations(slice_: discovery_v1.EndpointSlice) -> set[_Relation]:
    key = owner_of(slice_)
    return {(slice_.address_type, key, label, ip) for label, ip in hosts((slice_,))} if key else set()
