"""Hosts that Ingresses name, and the records of the namespaces that own them.

The first namespace that names a host owns it until it no longer names it. The Ingresses alone do not show which namespace was
the first, as their authors may edit old ones. So the controller writes records, ConfigMaps in a namespace to which users have
no access, and nodes serve a host only for its recorded owner. A cluster of an older version has no records until its
controllers have started: until then the age of the Ingresses decides.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Protocol

from kube.api import core_v1, meta_v1, networking_v1
from kube.gateway.names import HOSTS, NAMESPACE
from kube.informer import Informer
from kube.object_names import name_of, namespace_of

MOST_NAMED, MOST_READ = 8192, 16384
"""Entries of rules and of `tls` that are read for hosts: of one Ingress, and of all of a namespace, the oldest first."""
MOST_HOSTS, MOST_BYTES = 4096, 256 << 10
"""Hosts that one namespace may own, and bytes of their names with one more for each: its record has that size."""
_KEY = "hosts"

Named = Sequence[tuple[str, tuple[str, ...]]]
"""For each Ingress, the oldest first, its namespace and the hosts that it names."""
Owners = Mapping[str, str]
"""Namespaces by hosts."""


class HostOwnership(Protocol):
    """Owners of hosts: the namespaces to which they belong."""

    def owners(self, named: Named) -> Generator[int, None, Owners]:
        """Return the owners, the generator's value; yield numbers of steps."""
        ...


class NamedHosts:
    """Reads the hosts that Ingresses name, of a namespace only so many: each one costs the control plane and all nodes."""

    def __init__(self) -> None:
        self._read = Counter[str]()

    def of(self, ingress: networking_v1.Ingress) -> tuple[str, ...]:
        """Return the hosts, wildcards too, that an Ingress names, whether or not it can be served; call it by age."""
        namespace = namespace_of(ingress)
        most = min(MOST_NAMED, MOST_READ - self._read[namespace])
        read = list(itertools.islice(_entries(ingress), most))
        self._read[namespace] += len(read)
        return tuple(dict.fromkeys(filter(None, read)))


def _entries(ingress: networking_v1.Ingress) -> Iterator[str | None]:
    for rule in ingress.spec.rules:
        yield rule.host
    for each in ingress.spec.tls:
        yield from each.hosts if each.secret_name and each.hosts else ("",)


def by_age(named: Named, owners: Owners) -> Generator[int, None, Owners]:
    """Return owners, and for hosts without one the namespace of the oldest Ingress that names them."""
    found = dict(owners)
    for namespace, hosts in named:
        for host in hosts:
            found.setdefault(host, namespace)
        yield 1 + len(hosts) // 16
    return found


def record_name(namespace: str) -> str:
    """Return the name of a namespace's record."""
    return f"{HOSTS}-{namespace}"


def record(namespace: str, text: str) -> core_v1.ConfigMap:
    """Return the record of a namespace with its hosts, one a line."""
    return core_v1.ConfigMap(
        metadata=meta_v1.ObjectMeta(name=record_name(namespace), namespace=NAMESPACE), data={_KEY: text}
    )


def recorded(found: core_v1.ConfigMap) -> tuple[str, str]:
    """Return the namespace of a record and its text; no namespace for another ConfigMap."""
    start = record_name("")
    name = name_of(found)
    return (name.removeprefix(start), found.data.get(_KEY, "")) if name.startswith(start) else ("", "")


def hosts_of(text: str) -> list[str]:
    """Return the hosts of a record's text."""
    return [line for line in text[:MOST_BYTES].split("\n") if line]


class RecordedHosts:
    """The records as a node reads them; `records` are the ConfigMaps of NAMESPACE."""

    def __init__(self, records: Informer[core_v1.ConfigMap]) -> None:
        self._records = records

    @property
    def known(self) -> bool:
        """Return whether the records have been listed: without them the owners are not known."""
        return self._records.synced

    def owners(self, named: Named) -> Generator[int, None, Owners]:
        """Return the recorded owners; owners by age if there are no records yet."""
        found = yield from recorded_owners(self._records)
        if self._records.get(f"{NAMESPACE}/{HOSTS}") is not None:
            return found
        return (yield from by_age(named, found))


def recorded_owners(records: Informer[core_v1.ConfigMap]) -> Generator[int, None, dict[str, str]]:
    """Return the recorded owners. Two records may name a host for a moment: then the first namespace by name has it."""
    found: dict[str, str] = {}
    for namespace, text in sorted(map(recorded, records.list())):
        if namespace:
            hosts = hosts_of(text)
            for host in hosts:
                found.setdefault(host, namespace)
            yield 1 + len(hosts) // 16
    return found
