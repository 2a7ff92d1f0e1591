"""Computation of the built-in gateway that serves all Ingresses, and of what of them it does not serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from kube.api import networking_v1
from kube.gateway.hostnames import WILDCARD, parent
from kube.gateway.ingress_hosts import MOST_HOSTS, HostOwnership, Named, NamedHosts, Owners
from kube.gateway.ingresses import IngressRules, age
from kube.gateway.model import HostOwners, Listener, Route
from kube.gateway.names import HTTP, HTTPS, copy_of
from kube.gateway.view import View
from kube.object_names import key_of, namespace_of

MOST_MATCHES, MOST_CERTIFICATES = 4096, 128
"""Paths, and hostnames with a certificate, that the Ingresses of one namespace may have. A certificate counts before it is
checked, which takes a millisecond, so a missing one does too."""
MOST_CHARACTERS = 1 << 20
"""Length of all paths of the Ingresses of one namespace, each of which nodes normalize."""
NOBODY = "-"
"""Owner, no namespace's name, of hosts that are named but not owned: rules without a hostname do not serve them."""
Ingresses = Sequence[tuple[networking_v1.Ingress, IngressRules]]


@dataclass(frozen=True, slots=True)
class IngressResult:
    """The computed gateway for Ingresses."""

    served: tuple[Listener, ...]
    certificates: tuple[tuple[str, str], ...]
    """(namespace, name) of the Secrets that are served."""
    problems: Mapping[str, tuple[str, ...]]
    """By keys of Ingresses: what is not served, or not as written."""
    refused: frozenset[str]
    """Keys of Ingresses of which no rule is served, because other namespaces own their hosts."""


def compute_in_steps(ingresses: Ingresses, view: View, ownership: HostOwnership) -> Generator[int, None, IngressResult]:
    """Compute the gateway, the generator's value; yield after each certificate, and the size of each Ingress after it."""
    ordered = sorted(ingresses, key=lambda each: age(each[0]))
    named, read = [], NamedHosts()
    for ingress, _ in ordered:
        hosts = read.of(ingress)
        named.append((namespace_of(ingress), hosts))
        yield 1 + len(hosts) // 4
    owners = yield from ownership.owners(named)
    served = _Served(view, (yield from _with_nobody(owners, named)))
    for ingress, rules in ordered:
        yield from served.add(ingress, rules)
        yield 1 + rules.matches // 4
    return served.result()


def _with_nobody(owners: Owners, named: Named) -> Generator[int, None, Owners]:
    """Return owners, with NOBODY for hosts that are named and belong to no namespace, not even by a wildcard."""
    found = dict(owners)
    for _, hosts in named:
        for host in hosts:
            if host not in owners and parent(host) not in owners:
                found[host] = NOBODY
        yield 1 + len(hosts) // 8
    return found


class _Served:
    """Routes and certificates, in the order of the age of their Ingresses."""

    def __init__(self, view: View, owners: Owners) -> None:
        self._view, self._owners = view, owners
        self._matches, self._count, self._characters = Counter[str](), Counter[str](), Counter[str]()
        self._routes: list[Route] = []
        self._hosts: dict[str, set[str]] = {}
        """Hostnames of the routes of each namespace."""
        self._parents: dict[str, set[str]] = {}
        """The wildcards that include these hostnames."""
        self._certificates: dict[str, tuple[str, str]] = {}
        self._problems: dict[str, tuple[str, ...]] = {}
        self._refused: set[str] = set()

    def add(self, ingress: networking_v1.Ingress, rules: IngressRules) -> Generator[int, None, None]:
        """Add one Ingress, within the limits of its namespace; yield after each certificate."""
        namespace, problems, not_owned = namespace_of(ingress), list(rules.problems), 0
        for route in rules.routes:
            host = "".join(route.hostnames)
            if host and self._owners.get(host) != namespace:
                problems.append(self._not_owned(host))
                not_owned += 1
            elif self._matches[namespace] + len(route.rules) > MOST_MATCHES:
                problems.append(f"the Ingresses of a namespace have more than {MOST_MATCHES} paths")
            elif self._characters[namespace] + route.characters > MOST_CHARACTERS:
                problems.append(
                    f"the paths of the Ingresses of a namespace have more than {MOST_CHARACTERS} characters"
                )
            else:
                self._matches[namespace] += len(route.rules)
                self._characters[namespace] += route.characters
                self._routes.append(route)
                self._hosts.setdefault(namespace, set()).add(host)
                if host and not host.startswith(WILDCARD):
                    self._parents.setdefault(namespace, set()).add(parent(host))
        for host, secret in rules.certificates:
            if problem := self._add_certificate(host, namespace, secret):
                problems.append(problem)
            yield 1
        if not_owned and not_owned == len(rules.routes):
            self._refused.add(key_of(ingress))
        if problems:
            self._problems[key_of(ingress)] = tuple(dict.fromkeys(problems))

    def _not_owned(self, host: str) -> str:
        """Return why a host does not belong to a namespace whose Ingress names it."""
        if self._owners.get(host, NOBODY) != NOBODY:
            return f"host {host} belongs to another namespace, whose Ingress named it first"
        if self._owners.get(wildcard := parent(host), NOBODY) != NOBODY:
            return f"host {host} belongs to another namespace, whose Ingress named {wildcard} first"
        return f"the Ingresses of a namespace name more than {MOST_HOSTS} hosts, or too long ones: {host} is not served"

    def _add_certificate(self, host: str, namespace: str, secret: str) -> str:
        """Use a Secret for a hostname; return the problem, "" if none."""
        if host and self._owners.get(host) != namespace:
            return ""
        if (found := self._certificates.get(host)) is not None:
            other = found[0] != namespace
            return "a certificate without a hostname is used of an older Ingress in another namespace" if other else ""
        if self._count[namespace] >= MOST_CERTIFICATES:
            return f"the Ingresses of a namespace have certificates for more than {MOST_CERTIFICATES} hosts"
        self._count[namespace] += 1
        if state := self._view.certificate(namespace, secret):
            reason = "is missing" if state == "missing" else "has no valid certificate with its key"
            return f"Secret {secret} of type kubernetes.io/tls {reason}"
        self._certificates[host] = namespace, secret
        return ""

    def result(self) -> IngressResult:
        """Return what is served: the routes of all Ingresses, over TLS those of the certificate's namespace.

        A certificate is not served if its namespace has no route for the hostname.
        """
        routes, owners = tuple(self._routes), HostOwners(self._owners)
        listeners = [Listener("http", HTTP, False, "", (), routes, owners)]
        used: dict[tuple[str, str], None] = {}
        for number, (host, secret) in enumerate(self._certificates.items()):
            if self._serves(host, secret[0]):
                copies = (copy_of(*secret),)
                listeners.append(Listener(f"https-{number}", HTTPS, True, host, copies, routes, owners, secret[0]))
                used[secret] = None
        return IngressResult(tuple(listeners), tuple(used), self._problems, frozenset(self._refused))

    def _serves(self, host: str, namespace: str) -> bool:
        """Return whether a namespace has a route for a hostname that it owns, or for one that a wildcard includes."""
        hosts = self._hosts.get(namespace, set())
        if not host or "" in hosts:
            return bool(hosts)
        if host.startswith(WILDCARD):
            return host in hosts or host in self._parents.get(namespace, set())
        return host in hosts or parent(host) in hosts
