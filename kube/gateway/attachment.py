"""Attachment of routes to listeners: a listener allows the route, and they have names in common.

Whether a listener or the references of a route are valid makes no difference to attachment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kube.gateway.hostnames import common
from kube.gateway.listeners import ListenerState
from kube.gateway.objects import GROUP, HTTPRoute, ParentReference
from kube.gateway.verdict import ACCEPTED, Verdict, failed
from kube.gateway.view import View


@dataclass(frozen=True, slots=True)
class Attachment:
    """A route at a Gateway, by one of its parent references."""

    accepted: Verdict
    listeners: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """Positions of the listeners, and the hostnames of the route there (none: any)."""


def parent_of(reference: ParentReference, route: HTTPRoute) -> str | None:
    """Return the key of the Gateway that a route refers to, None if it is another kind of parent."""
    if reference.group != GROUP or reference.kind != "Gateway":
        return None
    return f"{reference.namespace or route.metadata.namespace or ''}/{reference.name}"


def attach(
    route: HTTPRoute, reference: ParentReference, namespace: str, states: Sequence[ListenerState], view: View
) -> Attachment:
    """Attach a route to the listeners that a reference selects, of a Gateway in a namespace."""
    selected = [
        (position, state)
        for position, state in enumerate(states)
        if reference.section_name in (None, "", state.listener.name) and reference.port in (None, state.listener.port)
    ]
    if not selected:
        return Attachment(failed("NoMatchingParent", "The Gateway has no listener of this name and port"))
    own = route.metadata.namespace or ""
    labels = view.labels(own)
    allowed = [each for each in selected if each[1].allows("HTTPRoute", own, namespace, labels)]
    if not allowed:
        return Attachment(failed("NotAllowedByListeners", f"No selected listener allows HTTPRoutes in namespace {own}"))
    found = [
        (position, hostnames)
        for position, state in allowed
        if (hostnames := common(state.listener.hostname, route.spec.hostnames)) is not None
    ]
    if not found:
        return Attachment(
            failed("NoMatchingListenerHostname", "The hostnames of the route are not those of a listener")
        )
    return Attachment(ACCEPTED, tuple(found))
