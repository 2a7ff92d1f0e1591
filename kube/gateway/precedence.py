"""Order of the matches at a listener: the first that meets a request serves it.

The order is the specification's (HTTPRoute, hostnames and rules.matches): more specific hostname, exact path, longer prefix,
method, more headers, more query parameters; then the older route, then by name, then the order in the route.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kube.gateway.hostnames import specificity
from kube.gateway.model import Match, Route, Rule


@dataclass(frozen=True, slots=True)
class Entry:
    """A match of a rule of a route, for one hostname (empty: any)."""

    hostname: str
    match: Match
    rule: Rule
    route: Route


def ordered(routes: Iterable[Route]) -> list[Entry]:
    """Return all matches of routes at a listener, best first."""
    found = [
        (sort_key(hostname, match, route), position, Entry(hostname, match, rule, route))
        for route in routes
        for hostname in route.hostnames or ("",)
        for position, (rule, match) in enumerate((rule, match) for rule in route.rules for match in rule.matches)
    ]
    found.sort(key=lambda each: each[:2])
    return [entry for _, _, entry in found]


def sort_key(hostname: str, match: Match, route: Route) -> tuple[object, ...]:
    """Return a key that is smaller for what has precedence, but for the order of matches within a route."""
    precise, length = specificity(hostname)
    return (-precise, -length, *match_key(match), *age_key(route))


def match_key(match: Match) -> tuple[int, ...]:
    """Return a key that is smaller for the more specific match."""
    path = match.path
    return (
        0 if path.kind == "Exact" else 1,
        -len(path.value.rstrip("/")),
        0 if match.method else 1,
        -len(match.headers),
        -len(match.query),
    )


def age_key(route: Route) -> tuple[str, str, str, str]:
    """Return a key that is smaller for the older route, by name for those of one second."""
    return route.created, route.namespace, route.name, route.kind
