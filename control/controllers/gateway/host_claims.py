"""Claims of namespaces to the hosts of Ingresses: the first namespace that names a host owns it until it no longer names it.

A host is kept a little longer for its namespace, so that an Ingress of another namespace does not get it while one is
replaced. The hosts that a wildcard includes belong to the wildcard's namespace, except those that others owned before.
New claims are computed from the former ones and the Ingresses, in steps: users decide how many there are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field

from kube.gateway.hostnames import parent
from kube.gateway.ingress_hosts import MOST_BYTES, MOST_HOSTS, Named

KEPT_SECONDS = 60.0
"""Time for which a host is kept for a namespace that no longer names it."""


@dataclass(frozen=True, slots=True)
class Claims:
    """Namespaces by hosts, the times until which hosts are kept that are not named, and each namespace's record."""

    owners: Mapping[str, str] = field(default_factory=dict)
    until: Mapping[str, float] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    """A namespace's hosts, one a line."""
    incomplete: bool = False
    """True if hosts were given up for others of their namespaces: who waits for them gets them with the next computation."""


def claimed(before: Claims, named: Named, now: float, *, wildcards_exclusive: bool) -> Generator[int, None, Claims]:
    """Compute the claims after changes of Ingresses, the generator's value; yield numbers of steps.

    With `wildcards_exclusive` a host that another namespace's wildcard includes is refused.
    """
    wanted: dict[str, set[str]] = {}
    for namespace, hosts in named:
        wanted.setdefault(namespace, set()).update(hosts)
        yield 1 + len(hosts) // 16
    claiming = _Claiming(before, now)
    yield from claiming.keep(wanted)
    for namespace, hosts in named:
        for host in hosts:
            # A wildcard stands for one label and is its own `parent`: no wildcard includes another one.
            refused = wildcards_exclusive and claiming.owners.get(parent(host), namespace) != namespace
            if not refused and claiming.is_free(host):
                claiming.add(host, namespace)
        yield 1 + len(hosts) // 8
    return (yield from claiming.result())


class _Claiming:
    """Claims that are being computed."""

    def __init__(self, before: Claims, now: float) -> None:
        self._before, self._now = before, now
        self.owners: dict[str, str] = {}
        self._until: dict[str, float] = {}
        self._count, self._bytes = Counter[str](), Counter[str]()
        self._unnamed: dict[str, deque[str]] = {}
        """Hosts that are kept although no Ingress names them, by namespace, in the order in which they are given up."""
        self._changed: set[str] = set()
        self._given_up: set[str] = set()
        """Hosts that made room: who named them before in the order of age has been refused already."""

    def keep(self, wanted: Mapping[str, set[str]]) -> Generator[int, None, None]:
        """Keep the former claims to hosts that are still named, or were until recently."""
        unnamed = []
        for number, (host, namespace) in enumerate(self._before.owners.items(), 1):
            if host in wanted.get(namespace, ()):
                self._put(host, namespace)
            else:
                unnamed.append((self._before.until.get(host, self._now + KEPT_SECONDS), host, namespace))
            if not number % 16:
                yield 1
        for until, host, namespace in sorted(unnamed):
            if until > self._now and self._room(host, namespace):
                self._put(host, namespace)
                self._until[host] = until
                self._unnamed.setdefault(namespace, deque()).append(host)
            else:
                self._changed.add(namespace)
        yield 1 + len(unnamed) // 16

    def is_free(self, host: str) -> bool:
        """Return whether a host can be claimed: nobody owns it, or did until this computation."""
        return host not in self.owners and host not in self._given_up and parent(host) not in self._given_up

    def add(self, host: str, namespace: str) -> None:
        """Claim a host that is free, if its namespace does not own too many."""
        unnamed = self._unnamed.get(namespace)
        while not self._room(host, namespace) and unnamed:
            self._drop(unnamed.popleft(), namespace)
        if self._room(host, namespace):
            self._put(host, namespace)
            self._changed.add(namespace)

    def _room(self, host: str, namespace: str) -> bool:
        return self._count[namespace] < MOST_HOSTS and self._bytes[namespace] + len(host) < MOST_BYTES

    def _put(self, host: str, namespace: str) -> None:
        self.owners[host] = namespace
        self._count[namespace] += 1
        self._bytes[namespace] += len(host) + 1

    def _drop(self, host: str, namespace: str) -> None:
        del self.owners[host], self._until[host]
        self._count[namespace] -= 1
        self._bytes[namespace] -= len(host) + 1
        self._changed.add(namespace)
        self._given_up.add(host)

    def result(self) -> Generator[int, None, Claims]:
        """Return the claims, with new records for the namespaces whose claims have changed."""
        lines: dict[str, list[str]] = {}
        for number, (host, namespace) in enumerate(self.owners.items(), 1):
            if namespace in self._changed or namespace not in self._before.texts:
                lines.setdefault(namespace, []).append(host)
            if not number % 32:
                yield 1
        texts = {each: text for each, text in self._before.texts.items() if self._count[each]}
        texts |= {each: "\n".join(hosts) for each, hosts in lines.items()}
        return Claims(self.owners, self._until, texts, bool(self._given_up))
