"""Computation of one Gateway: its listeners with their routes, and the results from which the statuses follow.

The controller and the nodes compute the same. Routes are attached in the order of their age, so that the limits on them do not
depend on who computes; older Gateways come first, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube.gateway import model
from kube.gateway.attachment import Attachment, attach, parent_of
from kube.gateway.listeners import ListenerState, copies, evaluate
from kube.gateway.match_limit import MOST_MATCHES, Usage
from kube.gateway.objects import Gateway, HTTPRoute
from kube.gateway.rules import RouteRules
from kube.gateway.verdict import ACCEPTED, Verdict, failed
from kube.gateway.view import View
from kube.object_names import key_of

MOST_COMPARISONS = 2 * 64 * MOST_MATCHES
"""Comparisons at one Gateway that the routes of one namespace may need: for each reference to it, their hostnames and one more,
with each of at most 64 listeners. Routes that are all attached need no more, as each has a match at least."""


@dataclass(frozen=True, slots=True)
class RouteResult:
    """A route at a Gateway; what of it is computed from which generation of the route."""

    generation: int | None
    resolved: Verdict | None
    """None if the rules of the route are not converted."""
    partial: str
    attachments: Mapping[int, Attachment]
    """By the positions of the route's parent references."""
    compared: bool = True
    """False if no listener allows routes of the namespace, so that none was compared with the route."""


@dataclass(frozen=True, slots=True)
class Result:
    """A computed Gateway."""

    accepted: Verdict
    listeners: tuple[ListenerState, ...]
    attached: tuple[int, ...]
    """Number of accepted routes of each listener."""
    routes: Mapping[str, RouteResult]
    """By the keys of the routes that refer to the Gateway."""
    served: tuple[model.Listener, ...]
    """The programmed listeners with their routes."""
    usage: Usage


Routes = Sequence[tuple[HTTPRoute, RouteRules]]
"""Routes that refer to a Gateway, with their converted rules."""


def rejected(gateway: str, route: HTTPRoute, rules: RouteRules | None) -> RouteResult:
    """Return the result of a route in a namespace of which no listener of a Gateway allows routes."""
    message = f"No listener allows HTTPRoutes in namespace {route.metadata.namespace}"
    verdict = Attachment(failed("NotAllowedByListeners", message))
    positions = (number for number, each in enumerate(route.spec.parent_refs) if parent_of(each, route) == gateway)
    resolved, partial = (rules.resolved, rules.partial) if rules is not None else (None, "")
    return RouteResult(route.metadata.generation, resolved, partial, dict.fromkeys(positions, verdict), compared=False)


def compute_in_steps(
    gateway: Gateway, routes: Routes, view: View, before: Mapping[str, int] | None = None
) -> Generator[int, None, Result]:
    """Compute a Gateway, the generator's value; yield after each certificate, and after each route how much was compared.

    `before` are the matches of routes at older Gateways, by the routes' namespaces.
    """
    states = yield from evaluate(gateway, view)
    accepted = gateway_verdict(gateway, states)
    attached, account = [0] * len(states), _Account(before or {})
    results: dict[str, RouteResult] = {}
    served: list[list[model.Route]] = [[] for _ in states]
    for route, rules in sorted(routes, key=lambda each: age(each[0])):
        found = _attach(gateway, route, rules, states, account, view)
        results[key_of(route)] = RouteResult(route.metadata.generation, rules.resolved, rules.partial, found)
        for position, hostnames in _merged(found.values()):
            attached[position] += 1
            if states[position].programmed and accepted.ok:
                served[position].append(_route(route, hostnames, rules))
        yield 1 + len(states) * (1 + len(route.spec.hostnames)) // 4
    listeners = tuple(
        _listener(state, served[position]) for position, state in enumerate(states) if state.programmed and accepted.ok
    )
    return Result(accepted, states, tuple(attached), results, listeners, account.usage())


def age(route: HTTPRoute) -> tuple[str, str]:
    return route.metadata.creation_timestamp or "", key_of(route)


def gateway_verdict(gateway: Gateway, states: Sequence[ListenerState]) -> Verdict:
    """Return whether a Gateway is accepted; with reason ListenersNotValid it may be, without some of its listeners."""
    spec = gateway.spec
    if spec.infrastructure is not None and spec.infrastructure.parameters_ref is not None:
        return failed("InvalidParameters", "infrastructure.parametersRef is not supported")
    if any(each.value for each in spec.addresses):
        return failed("UnsupportedAddress", "Wherry assigns the addresses of Gateways; remove spec.addresses")
    invalid = [each.listener.name for each in states if not (each.accepted.ok and each.conflicts.ok)]
    if not invalid:
        return ACCEPTED
    message = f"Listeners that are not valid: {', '.join(invalid)}"
    verdict = failed("ListenersNotValid", message)
    return verdict if len(invalid) == len(states) else Verdict(True, verdict.reason, verdict.message)


class _Account:
    """Matches and comparisons of routes, by the namespaces of these."""

    def __init__(self, before: Mapping[str, int]) -> None:
        self._before, self._matches, self._refused = before, Counter[str](), set[str]()
        self._comparisons = Counter[str]()

    def compare(self, namespace: str, more: int) -> bool:
        """Count the comparisons that a route needs; return False if they exceed the limit, now or at an older route."""
        self._comparisons[namespace] += more
        return self._comparisons[namespace] <= MOST_COMPARISONS

    def add(self, namespace: str, more: int) -> bool:
        """Count the matches of a route; return False if they exceed the limit."""
        if self._before.get(namespace, 0) + self._matches[namespace] + more > MOST_MATCHES:
            self._refused.add(namespace)
            return False
        self._matches[namespace] += more
        return True

    def usage(self) -> Usage:
        return Usage({key: number for key, number in self._matches.items() if number}, frozenset(self._refused))


def _attach(
    gateway: Gateway,
    route: HTTPRoute,
    rules: RouteRules,
    states: Sequence[ListenerState],
    account: _Account,
    view: View,
) -> dict[int, Attachment]:
    """Attach a route by each of its references to a Gateway, and count its hostnames and matches."""
    key, namespace, owner = key_of(gateway), gateway.metadata.namespace or "", route.metadata.namespace or ""
    references = [each for each in enumerate(route.spec.parent_refs) if parent_of(each[1], route) == key]
    if not account.compare(owner, len(references) * len(states) * (1 + len(route.spec.hostnames))):
        verdict = failed("TooManyHostnames", f"The routes of a namespace need more than {MOST_COMPARISONS} comparisons")
        return {position: Attachment(verdict) for position, _ in references}
    found: dict[int, Attachment] = {}
    for position, reference in references:
        attachment = attach(route, reference, namespace, states, view)
        found[position] = (
            attachment if rules.supported.ok or not attachment.accepted.ok else Attachment(rules.supported)
        )
    more = rules.matches * sum(max(1, len(hostnames)) for _, hostnames in _merged(found.values()))
    if not account.add(owner, more):
        verdict = failed("TooManyMatches", f"The routes of a namespace have more than {MOST_MATCHES} matches")
        return {position: Attachment(verdict) if each.accepted.ok else each for position, each in found.items()}
    return found


def _merged(attachments: Iterable[Attachment]) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Return the listeners of a route by any of its references, and its hostnames there."""
    found: dict[int, tuple[str, ...]] = {}
    for each in attachments:
        found.update(each.listeners)
    return found.items()


def _route(route: HTTPRoute, hostnames: tuple[str, ...], rules: RouteRules) -> model.Route:
    metadata = route.metadata
    return model.Route(
        "HTTPRoute",
        metadata.namespace or "",
        metadata.name or "",
        metadata.creation_timestamp or "",
        hostnames,
        rules.rules,
    )


def _listener(state: ListenerState, routes: Sequence[model.Route]) -> model.Listener:
    listener = state.listener
    return model.Listener(listener.name, listener.port, state.tls, listener.hostname, copies(state), tuple(routes))
