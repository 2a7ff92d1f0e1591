"""Statuses of GatewayClasses, Gateways and HTTPRoutes, as the results of their computation demand.

Each function returns the status to be written, None if the stored one is right already. Times are texts of the API.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from kube.api import meta_v1
from kube.gateway.attachment import Attachment
from kube.gateway.computation import Result
from kube.gateway.conditions import body, condition, is_stale, merged
from kube.gateway.features import FEATURES
from kube.gateway.listeners import ListenerState
from kube.gateway.names import CONTROLLER
from kube.gateway.objects import (
    GROUP,
    ClassStatus,
    Gateway,
    GatewayClass,
    GatewayStatus,
    HTTPRoute,
    ListenerStatus,
    ParentReference,
)
from kube.gateway.rules import RouteRules
from kube.gateway.verdict import ACCEPTED, Verdict, failed
from kube.serialize import convert, to_dict

MOST_ADDRESSES, MOST_PARENTS = 16, 32
"""Addresses of a Gateway and parents of a route that the API allows in a status."""
PROGRAMMED = Verdict(True, "Programmed")


# -- classes ----------------------------------------------------------------------------------------------------------
def class_status(found: GatewayClass, now: str) -> ClassStatus | None:
    """Return the status of a GatewayClass of this controller."""
    verdict = ACCEPTED
    if found.spec.parameters_ref is not None:
        verdict = failed("InvalidParameters", "spec.parametersRef is not supported")
    generation, current = found.metadata.generation, found.status
    if is_stale(current.conditions, generation):
        return None
    wanted = merged(current.conditions, [condition("Accepted", verdict, generation, now)])
    status = ClassStatus(conditions=wanted, supported_features=[{"name": name} for name in FEATURES])
    return status if status != current else None


# -- gateways ---------------------------------------------------------------------------------------------------------
def gateway_status(
    gateway: Gateway,
    result: Result,
    addresses: Sequence[str],
    problem: Verdict | None,
    now: str,
    unserved: Mapping[int, Verdict] = MappingProxyType({}),
) -> GatewayStatus | None:
    """Return the status of a Gateway; `problem` is why it is not served although it is valid, `unserved` why single ports
    are not.
    """
    generation, current = gateway.metadata.generation, gateway.status
    if is_stale(current.conditions, generation):
        return None
    if problem is None and unserved and all(each.listener.port in unserved for each in result.listeners):
        problem = unserved[min(unserved)]
    programmed = programmed_verdict(result, problem)
    known = {each.name: each.conditions for each in current.listeners}
    listeners = []
    for state, attached in zip(result.listeners, result.attached, strict=True):
        name, port = state.listener.name, state.listener.port
        reason = unserved.get(port, problem)
        conditions = merged(known.get(name, []), _listener_conditions(state, result, reason, generation, now))
        kinds = [{"group": GROUP, "kind": kind} for kind in state.kinds]
        listeners.append(
            ListenerStatus(name=name, supported_kinds=kinds, attached_routes=attached, conditions=conditions)
        )
    wanted = [
        condition("Accepted", result.accepted, generation, now),
        condition("Programmed", programmed, generation, now),
    ]
    status = GatewayStatus(
        addresses=[{"type": "IPAddress", "value": each} for each in addresses[:MOST_ADDRESSES]],
        conditions=merged(current.conditions, wanted),
        listeners=listeners,
    )
    return status if status != current else None


def unserved_ports(refused: Collection[int], awaited: Collection[int]) -> dict[int, Verdict]:
    """Return why ports are not served: those that the addresses do not have, and on which not all nodes listen yet."""
    return {port: _awaited(port) for port in awaited} | {port: _refused(port) for port in refused}


def _refused(port: int) -> Verdict:
    return failed("AddressNotAssigned", f"The load balancer does not have port {port}: another Service may have it")


def _awaited(port: int) -> Verdict:
    return failed("AddressNotAssigned", f"A node whose address is listed does not listen on port {port} yet")


def gateway_body(status: GatewayStatus) -> dict[str, Any]:
    """Return a Gateway's status as JSON."""
    listeners = [
        {
            "name": each.name,
            "supportedKinds": each.supported_kinds,
            "attachedRoutes": each.attached_routes,
            "conditions": list(map(body, each.conditions)),
        }
        for each in status.listeners
    ]
    return {
        "addresses": status.addresses,
        "conditions": list(map(body, status.conditions)),
        "listeners": listeners,
    }


def class_body(status: ClassStatus) -> dict[str, Any]:
    """Return a GatewayClass's status as JSON."""
    return {"conditions": list(map(body, status.conditions)), "supportedFeatures": status.supported_features}


def programmed_verdict(result: Result, problem: Verdict | None) -> Verdict:
    """Return whether a Gateway serves any listener."""
    if not result.accepted.ok:
        return failed("Invalid", result.accepted.message)
    if not result.served:
        return failed("Invalid", "No listener can be served; their conditions have the reasons")
    return problem or PROGRAMMED


def _listener_conditions(
    state: ListenerState, result: Result, problem: Verdict | None, generation: int | None, now: str
) -> list[meta_v1.Condition]:
    accepted = state.accepted if state.accepted.ok is False or state.conflicts.ok else state.conflicts
    programmed = PROGRAMMED
    if not state.programmed or not result.accepted.ok:
        programmed = failed("Invalid", "The listener or its Gateway is not valid")
    elif problem is not None:
        programmed = failed("Pending", problem.message)
    conflicted = Verdict(not state.conflicts.ok, state.conflicts.reason, state.conflicts.message)
    found = [
        condition("Accepted", accepted, generation, now),
        condition("Conflicted", conflicted, generation, now),
        condition("Programmed", programmed, generation, now),
        condition("ResolvedRefs", state.resolved, generation, now),
    ]
    if state.overlaps:
        message = "Other TLS listeners of the port have hostnames in common"
        found.append(condition("OverlappingTLSConfig", Verdict(True, "OverlappingHostnames", message), generation, now))
    return found


# -- routes -----------------------------------------------------------------------------------------------------------
def route_parents(
    route: HTTPRoute, rules: RouteRules, attachments: Mapping[int, Attachment], unknown: Sequence[int], now: str
) -> list[dict[str, Any]] | None:
    """Return the parents of a route's status.

    `attachments` are by positions of parent references; `unknown` are positions of Gateways that are not computed yet, of
    which the stored status stays. Parents of other controllers stay as they are, and have precedence if there are too many.
    """
    current, generation = route.status.parents, route.metadata.generation
    own = [each for each in current if each.get("controllerName") == CONTROLLER]
    foreign = [each for each in current if each.get("controllerName") != CONTROLLER]
    stored = {_reference_key(each.get("parentRef") or {}): each for each in own}
    found = []
    for position, reference in enumerate(route.spec.parent_refs):
        parent = _reference(reference)
        old = stored.get(_reference_key(parent))
        if position in unknown:
            found += [old] if old is not None else []
            continue
        attachment = attachments.get(position)
        if attachment is None:
            continue
        conditions = _stored_conditions(old)
        if is_stale(conditions, generation):
            return None
        wanted = merged(conditions, _route_conditions(rules, attachment, generation, now))
        found.append({"parentRef": parent, "controllerName": CONTROLLER, "conditions": [body(each) for each in wanted]})
    parents = [*foreign, *found][:MOST_PARENTS]
    return parents if parents != current else None


def _route_conditions(
    rules: RouteRules, attachment: Attachment, generation: int | None, now: str
) -> list[meta_v1.Condition]:
    found = [
        condition("Accepted", attachment.accepted, generation, now),
        condition("ResolvedRefs", rules.resolved, generation, now),
    ]
    if rules.partial and attachment.accepted.ok:
        verdict = Verdict(True, "UnsupportedValue", failed("", rules.partial).message)
        found.append(condition("PartiallyInvalid", verdict, generation, now))
    return found


def _stored_conditions(parent: dict[str, Any] | None) -> list[meta_v1.Condition]:
    return [convert(each, meta_v1.Condition) for each in (parent or {}).get("conditions") or ()]


def _reference(reference: ParentReference) -> dict[str, Any]:
    """Return a reference as the API stores it, with its defaults."""
    return {"group": reference.group, "kind": reference.kind, **to_dict(reference)}


def _reference_key(reference: dict[str, Any]) -> tuple[Any, ...]:
    names = ("group", "kind", "namespace", "name", "sectionName", "port")
    return tuple(reference.get(name) for name in names)
