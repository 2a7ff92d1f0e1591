"""Conversion of Ingresses to the routes of one built-in gateway on ports 80 and 443.

All Ingresses share the gateway, so a hostname belongs to the namespace whose Ingress named it first; other namespaces cannot
add paths to it, serve the paths that it leaves, or serve another certificate. Rules without a hostname are merged for the
hosts that belong to nobody.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from kube.api import networking_v1
from kube.gateway.backends import check_port
from kube.gateway.model import LONGEST_TARGET, Backend, Match, PathMatch, Route, Rule
from kube.gateway.names import CONTROLLER
from kube.gateway.view import View
from kube.object_names import key_of, name_of, namespace_of

MOST_PATHS, MOST_HOSTS = 4096, 1024
"""Paths, and hostnames of certificates, of one Ingress; its size allows some ten thousand."""
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
DEFAULT_CLASS = "ingressclass.kubernetes.io/is-default-class"


@dataclass(frozen=True, slots=True)
class IngressRules:
    """An Ingress, converted: rules by hostname ("" is any), and Secrets by the hostnames that they are for."""

    routes: tuple[Route, ...]
    certificates: tuple[tuple[str, str], ...]
    """(hostname, name of a Secret in the namespace of the Ingress)"""
    problems: tuple[str, ...]

    @property
    def matches(self) -> int:
        return sum(len(route.rules) for route in self.routes)


def is_ours(ingress: networking_v1.Ingress, classes: Mapping[str, networking_v1.IngressClass]) -> bool:
    """Return whether Wherry serves an Ingress: by its class, or without one if a default class is Wherry's."""
    name = ingress.spec.ingress_class_name or ingress.metadata.annotations.get(CLASS_ANNOTATION)
    if name:
        found = classes.get(name)
        return found is not None and found.spec.controller == CONTROLLER
    return any(
        each.spec.controller == CONTROLLER and each.metadata.annotations.get(DEFAULT_CLASS) == "true"
        for each in classes.values()
    )


def not_served(problem: str) -> IngressRules:
    """Return the result for an Ingress of which nothing is served."""
    return IngressRules((), (), (problem,))


def paths(ingress: networking_v1.Ingress) -> int:
    """Return the number of paths of an Ingress; a rule without paths counts as one, and so does an Ingress without rules."""
    return max(1, sum(max(1, len(rule.http.paths) if rule.http is not None else 0) for rule in ingress.spec.rules))


def convert_in_steps(ingress: networking_v1.Ingress, view: View) -> Generator[int, None, IngressRules]:
    """Convert one Ingress, the generator's value; yield after each path. Of one with too many paths nothing is served."""
    if paths(ingress) > MOST_PATHS:
        return not_served(f"the Ingress has more than {MOST_PATHS} paths")
    problems: list[str] = []
    namespace = namespace_of(ingress)
    by_host: dict[str, list[Rule]] = {}
    lengths = Counter[str]()
    default = ingress.spec.default_backend
    for rule in ingress.spec.rules:
        rules = by_host.setdefault(rule.host or "", [])
        for path in rule.http.paths if rule.http is not None else []:
            if len(path.path or "") > LONGEST_TARGET:
                problems.append(f"a path has more than {LONGEST_TARGET} characters, so no request can match it")
                yield 1
                continue
            backend = yield from _backend(path.backend, namespace, view, problems)
            kind = "Exact" if path.path_type == "Exact" else "PathPrefix"
            rules.append(Rule((Match(PathMatch(kind, path.path or "/")),), backends=(backend,)))  # type: ignore[arg-type]
            lengths[rule.host or ""] += len(path.path or "/")
            yield 1
    if default is not None:
        last = Rule(backends=((yield from _backend(default, namespace, view, problems)),))
        by_host.setdefault("", [])
        for rules in by_host.values():
            rules.append(last)
    routes = tuple(_route(ingress, host, rules, lengths[host]) for host, rules in by_host.items() if rules)
    return IngressRules(routes, tuple(_certificates(ingress, by_host)), tuple(problems))


def _route(ingress: networking_v1.Ingress, host: str, rules: Sequence[Rule], characters: int) -> Route:
    created = ingress.metadata.creation_timestamp or ""
    hostnames = (host,) if host else ()
    return Route(
        "Ingress",
        namespace_of(ingress),
        name_of(ingress),
        created,
        hostnames,
        tuple(rules),
        single_label=True,
        characters=characters,
    )


def _backend(
    backend: networking_v1.IngressBackend | None, namespace: str, view: View, problems: list[str]
) -> Generator[int, None, Backend]:
    if backend is None or backend.service is None:
        problems.append("a backend is not a Service; its requests are answered 500")
        return Backend(1)
    name, port = backend.service.name, backend.service.port
    ports = yield from view.ports(namespace, name)
    if ports is None:
        problems.append(f"there is no Service {name}; its requests are answered 500")
        return Backend(1)
    number = port.number if port is not None else None
    if port is not None and port.name:
        number = ports.numbers.get(port.name)
        if number is None:
            problems.append(f"Service {name} has no port {port.name}; its requests are answered 500")
            return Backend(1)
    verdict = check_port(ports, namespace, name, number)
    if not verdict.ok:
        problems.append(f"{verdict.message}; its requests are answered 500")
        return Backend(1)
    return Backend(1, namespace, name, number or 0)


def _certificates(ingress: networking_v1.Ingress, by_host: Mapping[str, Sequence[Rule]]) -> list[tuple[str, str]]:
    """Return the Secrets by hostnames. Without hostnames, a Secret is for those of the rules that no other one is for."""
    pairs = ((host, each.secret_name) for each in ingress.spec.tls if each.secret_name for host in each.hosts)
    found = dict(itertools.islice(pairs, MOST_HOSTS))
    rest = next((each.secret_name for each in ingress.spec.tls if each.secret_name and not each.hosts), None)
    if rest:  # those after the first are for no host
        for host in by_host:
            found.setdefault(host, rest)
    return list(found.items())


def age(ingress: networking_v1.Ingress) -> tuple[str, str]:
    """Return a key that is smaller for the older Ingress."""
    return ingress.metadata.creation_timestamp or "", key_of(ingress)
