"""Rules of HTTPRoutes, converted to what the gateway serves.

A rule that uses something unsupported does not fall back to others: its requests are answered 500. Only matches by regular
expressions, which cannot be evaluated, are left out with their rule.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass

from kube import duration
from kube.gateway import backends, filters
from kube.gateway.filters import Unsupported
from kube.gateway.model import Match, Pair, PathMatch, Rule
from kube.gateway.objects import HTTPRoute, RouteMatch, RouteRule, ValueMatch
from kube.gateway.verdict import ACCEPTED, RESOLVED, Verdict, failed
from kube.gateway.view import View


@dataclass(frozen=True, slots=True)
class RouteRules:
    """The rules of a route, with the verdicts about its values and references."""

    rules: tuple[Rule, ...]
    supported: Verdict
    """Not ok: the route has unsupported values in all of its rules, and is not accepted."""
    partial: str
    """The rules that are not served as written, if others are; "" if none."""
    resolved: Verdict

    @property
    def matches(self) -> int:
        """Number of matches, which a gateway's work is proportional to."""
        return sum(len(rule.matches) for rule in self.rules)


STOPPED = RouteRules((), failed("UnsupportedValue", "The rules take too long to convert"), "", RESOLVED)
"""Result for a route whose conversion was stopped."""


def convert_in_steps(route: HTTPRoute, view: View) -> Generator[int, None, RouteRules]:
    """Convert the rules of a route, the generator's value; yield after each reference."""
    namespace = route.metadata.namespace or ""
    rules: list[Rule] = []
    problems: list[str] = []
    resolved = RESOLVED
    for position, rule in enumerate(route.spec.rules):
        try:
            matches = tuple(map(_match, rule.matches)) or (Match(),)
        except Unsupported as error:
            problems.append(f"rule {position}: {error}")
            continue
        try:
            found, verdict = yield from _rule(rule, matches, namespace, view)
        except Unsupported as error:
            problems.append(f"rule {position}: {error}; its requests are answered 500")
            found, verdict = Rule(matches), RESOLVED
        rules.append(found)
        resolved = verdict if resolved.ok else resolved
    text = "; ".join(problems)
    if problems and len(problems) == len(route.spec.rules):
        return RouteRules((), failed("UnsupportedValue", text), "", resolved)
    return RouteRules(tuple(rules), ACCEPTED, f"Dropped Rule: {text}" if problems else "", resolved)


def _rule(
    rule: RouteRule, matches: tuple[Match, ...], namespace: str, view: View
) -> Generator[int, None, tuple[Rule, Verdict]]:
    if rule.retry is not None or rule.session_persistence is not None:
        raise Unsupported("retry and sessionPersistence are not supported")
    converted = filters.convert(rule.filters)
    resolved = []
    for each in rule.backend_refs:
        resolved.append((yield from backends.resolve(each, namespace, view)))
        yield 1
    yield 1 + len(matches)
    verdict = next((each.verdict for each in resolved if not each.verdict.ok), RESOLVED)
    if any(each.backend.filters.redirect is not None for each in resolved):
        raise Unsupported("a redirect in backendRefs is not supported")
    found = Rule(
        matches,
        converted,
        tuple(each.backend for each in resolved),
        _seconds(rule.timeouts.request),
        _seconds(rule.timeouts.backend_request),
    )
    return found, verdict


def _seconds(text: str) -> float | None:
    if not text:
        return None
    try:
        return max(duration.parse(text), 0.0)
    except ValueError as error:
        raise Unsupported(str(error)) from error


def _match(match: RouteMatch) -> Match:
    if match.path.type not in ("Exact", "PathPrefix"):
        raise Unsupported(f"a match of path by {match.path.type} is not supported")
    kind = "Exact" if match.path.type == "Exact" else "PathPrefix"
    headers = [(name.lower(), value) for name, value in map(_exact, match.headers)]
    return Match(
        PathMatch(kind, match.path.value or "/"),  # type: ignore[arg-type]
        match.method,
        _first_of_each(headers),
        _first_of_each([_exact(each) for each in match.query_params]),
    )


def _exact(match: ValueMatch) -> Pair:
    if match.type != "Exact":
        raise Unsupported(f"a match of headers or query parameters by {match.type} is not supported")
    return match.name, match.value


def _first_of_each(pairs: list[Pair]) -> tuple[Pair, ...]:
    """Return the first pair of each name: the API ignores later ones."""
    found: dict[str, str] = {}
    for name, value in pairs:
        found.setdefault(name, value)
    return tuple(found.items())
