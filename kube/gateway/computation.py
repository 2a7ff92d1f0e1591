"""Computation of one Gateway: its listeners with their routes, and the results from which the statuses follow.

The controller and the nodes compute the same. Routes are attached in the order of their age, so that the limits on them do not
depend on who computes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from kube.gateway import model
from kube.gateway.attachment import Attachment, attach, parent_of
from kube.gateway.listeners import ListenerState, copies, evaluate
from kube.gateway.objects import Gateway, HTTPRoute
from kube.gateway.rules import RouteRules
from kube.gateway.verdict import ACCEPTED, Verdict, failed
from kube.gateway.view import View
from kube.object_names import key_of

MOST_ENTRIES = 8192
"""Matches that the routes of one namespace may have at a Gateway, counted for each hostname at each listener."""


@dataclass(frozen=True, slots=True)
class RouteResult:
    """A route at a Gateway; what of it is computed from which generation of the route."""

    generation: int | None
    resolved: Verdict
    partial: str
    attachments: Mapping[int, Attachment]
    """By the positions of the route's parent references."""


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


Routes = Sequence[tuple[HTTPRoute, RouteRules]]
"""Routes that refer to a Gateway, with their converted rules."""


def compute(gateway: Gateway, routes: Routes, view: View) -> Result:
    """Compute a Gateway of Wherry's class."""
    steps = compute_in_steps(gateway, routes, view)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: Result = end.value
            return result


def compute_in_steps(gateway: Gateway, routes: Routes, view: View) -> Generator[int, None, Result]:
    """Compute a Gateway; yield after each route the number of comparisons, the generator's value is the Result."""
    states = evaluate(gateway, view)
    accepted = gateway_verdict(gateway, states)
    attached, entries = [0] * len(states), Counter[str]()
    results: dict[str, RouteResult] = {}
    served: list[list[model.Route]] = [[] for _ in states]
    for route, rules in sorted(routes, key=lambda each: age(each[0])):
        found = _attach(gateway, route, rules, states, entries, view)
        results[key_of(route)] = RouteResult(route.metadata.generation, rules.resolved, rules.partial, found)
        for position, hostnames in _merged(found.values()):
            attached[position] += 1
            if states[position].programmed and accepted.ok:
                served[position].append(_route(route, hostnames, rules))
        yield 1 + len(states) * (1 + len(route.spec.hostnames)) // 4
    listeners = tuple(
        _listener(state, served[position]) for position, state in enumerate(states) if state.programmed and accepted.ok
    )
    return Result(accepted, states, tuple(attached), results, listeners)


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


def _attach(
    gateway: Gateway,
    route: HTTPRoute,
    rules: RouteRules,
    states: Sequence[ListenerState],
    entries: Counter[str],
    view: View,
) -> dict[int, Attachment]:
    """Attach a route by each of its references to a Gateway, and count its matches."""
    key, namespace, owner = key_of(gateway), gateway.metadata.namespace or "", route.metadata.namespace or ""
    found: dict[int, Attachment] = {}
    for position, reference in enumerate(route.spec.parent_refs):
        if parent_of(reference, route) == key:
            attachment = attach(route, reference, namespace, states, view)
            found[position] = (
                attachment if rules.supported.ok or not attachment.accepted.ok else Attachment(rules.supported)
            )
    more = rules.matches * sum(max(1, len(hostnames)) for _, hostnames in _merged(found.values()))
    if entries[owner] + more > MOST_ENTRIES:
        verdict = failed("TooManyMatches", f"The routes of a namespace have more than {MOST_ENTRIES} matches")
        return {position: Attachment(verdict) if each.accepted.ok else each for position, each in found.items()}
    entries[owner] += more
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
