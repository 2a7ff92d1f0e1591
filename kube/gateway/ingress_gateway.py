"""Computation of the built-in gateway that serves all Ingresses, and of what of them it does not serve."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube.api import networking_v1
from kube.gateway.hostnames import WILDCARD, parent
from kube.gateway.ingresses import IngressRules, age
from kube.gateway.model import HostOwners, Listener, Route
from kube.gateway.names import HTTP, HTTPS, copy_of
from kube.gateway.view import View
from kube.object_names import key_of, namespace_of

MOST_MATCHES, MOST_CERTIFICATES = 4096, 128
"""Paths, and hostnames with a certificate, that the Ingresses of one namespace may have."""

Ingresses = Sequence[tuple[networking_v1.Ingress, IngressRules]]


@dataclass(frozen=True, slots=True)
class IngressResult:
    """The computed gateway for Ingresses."""

    served: tuple[Listener, ...]
    certificates: tuple[tuple[str, str], ...]
    """(namespace, name) of the Secrets that are served."""
    problems: Mapping[str, tuple[str, ...]]
    """By keys of Ingresses: what is not served, or not as written."""


def compute(ingresses: Ingresses, view: View) -> IngressResult:
    """Compute the gateway for the Ingresses of Wherry's class."""
    steps = compute_in_steps(ingresses, view)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: IngressResult = end.value
            return result


def compute_in_steps(ingresses: Ingresses, view: View) -> Generator[int, None, IngressResult]:
    """Compute the gateway; yield after each Ingress the number of its parts, the generator's value is the result."""
    ordered = sorted(ingresses, key=lambda each: age(each[0]))
    owners: dict[str, str] = {}
    for ingress, rules in ordered:
        for host in _hosts(rules):
            owners.setdefault(host, namespace_of(ingress))
        yield 1 + len(rules.routes)
    served = _Served(view, owners)
    for ingress, rules in ordered:
        served.add(ingress, rules)
        yield 1 + rules.matches // 4
    return served.result()


def _hosts(rules: IngressRules) -> Iterable[str]:
    for route in rules.routes:
        yield from route.hostnames
    for host, _ in rules.certificates:
        if host:
            yield host


class _Served:
    """Routes and certificates, in the order of the age of their Ingresses."""

    def __init__(self, view: View, owners: Mapping[str, str]) -> None:
        self._view, self._owners = view, owners
        self._matches, self._count = Counter[str](), Counter[str]()
        self._routes: list[Route] = []
        self._hosts: dict[str, set[str]] = {}
        """Hostnames of the routes of each namespace."""
        self._parents: dict[str, set[str]] = {}
        """The wildcards that include these hostnames."""
        self._certificates: dict[str, tuple[str, str]] = {}
        self._problems: dict[str, tuple[str, ...]] = {}

    def add(self, ingress: networking_v1.Ingress, rules: IngressRules) -> None:
        """Add one Ingress, within the limits of its namespace."""
        namespace, problems = namespace_of(ingress), list(rules.problems)
        for route in rules.routes:
            host = "".join(route.hostnames)
            if host and self._owners[host] != namespace:
                problems.append(f"host {host} belongs to an older Ingress in another namespace")
            elif self._matches[namespace] + len(route.rules) > MOST_MATCHES:
                problems.append(f"the Ingresses of a namespace have more than {MOST_MATCHES} paths")
            else:
                self._matches[namespace] += len(route.rules)
                self._routes.append(route)
                self._hosts.setdefault(namespace, set()).add(host)
                if host and not host.startswith(WILDCARD):
                    self._parents.setdefault(namespace, set()).add(parent(host))
        for host, secret in rules.certificates:
            if problem := self._add_certificate(host, namespace, secret):
                problems.append(problem)
        if problems:
            self._problems[key_of(ingress)] = tuple(dict.fromkeys(problems))

    def _add_certificate(self, host: str, namespace: str, secret: str) -> str:
        """Use a Secret for a hostname; return the problem, "" if none."""
        if host and self._owners[host] != namespace:
            return ""
        if (found := self._certificates.get(host)) is not None:
            other = found[0] != namespace
            return "a certificate without a hostname is used of an older Ingress in another namespace" if other else ""
        if state := self._view.certificate(namespace, secret):
            reason = "is missing" if state == "missing" else "has no valid certificate with its key"
            return f"Secret {secret} of type kubernetes.io/tls {reason}"
        if self._count[namespace] >= MOST_CERTIFICATES:
            return f"the Ingresses of a namespace have certificates for more than {MOST_CERTIFICATES} hosts"
        self._count[namespace] += 1
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
        return IngressResult(tuple(listeners), tuple(used), self._problems)

    def _serves(self, host: str, namespace: str) -> bool:
        """Return whether a namespace has a route for a hostname that it owns, or for one that a wildcard includes."""
        hosts = self._hosts.get(namespace, set())
        if not host or "" in hosts:
            return bool(hosts)
        if host.startswith(WILDCARD):
            return host in hosts or host in self._parents.get(namespace, set())
        return host in hosts or parent(host) in hosts
