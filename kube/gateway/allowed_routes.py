"""Routes that the listeners of a Gateway allow: by their kinds, and by the labels of their namespaces.

Selectors are compiled in each computation. Users decide how large they are, so those of a Gateway are limited together.
"""

from __future__ import annotations

from kube.api import meta_v1
from kube.gateway.objects import GROUP, Gateway, Listener, RouteNamespaces
from kube.gateway.verdict import RESOLVED, Verdict, failed
from kube.gateway.view import View
from kube.selectors import EVERYTHING, NOTHING, LabelSelector, SelectorError, from_label_selector

PROTOCOLS = {"HTTP": ("HTTPRoute",), "HTTPS": ("HTTPRoute",)}
"""Supported kinds of routes by the supported protocols."""
MOST_TERMS = 512
"""Labels, expressions and values of the selectors of a Gateway's listeners, of which a listener with more is not served. They
take a millisecond to compile.
"""
TOO_MANY_TERMS = LabelSelector(nothing=True)
"""The selector of a listener beyond MOST_TERMS; compared by identity."""


def kinds(listener: Listener) -> tuple[tuple[str, ...], Verdict]:
    supported = PROTOCOLS.get(listener.protocol, ())
    wanted = listener.allowed_routes.kinds
    if not wanted:
        return supported, RESOLVED
    valid = [each.kind for each in wanted if (each.group or GROUP) == GROUP and each.kind in supported]
    unknown = sorted({each.kind for each in wanted} - set(valid))
    if unknown or len(valid) < len(wanted):
        invalid = ", ".join(unknown or sorted({each.group or GROUP for each in wanted} - {GROUP}))
        verdict = failed("InvalidRouteKinds", f"Routes of these kinds cannot be attached: {invalid}")
        return tuple(dict.fromkeys(valid)), verdict
    return tuple(dict.fromkeys(valid)), RESOLVED


def namespaces(gateway: Gateway) -> list[LabelSelector | None]:
    """Return the labels of the namespaces whose routes each listener allows; None: only the Gateway's own namespace."""
    found, left = list[LabelSelector | None](), MOST_TERMS
    for each in gateway.spec.listeners:
        allowed = each.allowed_routes.namespaces
        terms = _terms(allowed.selector, left) if allowed.from_ == "Selector" and allowed.selector is not None else 0
        if terms > left:
            found.append(TOO_MANY_TERMS)
            continue
        left -= terms
        found.append(_selector(allowed))
    return found


def _terms(selector: meta_v1.LabelSelector, most: int) -> int:
    """Return the number of terms of a selector, or a number above `most` if there are more."""
    terms = len(selector.match_labels) + len(selector.match_expressions)
    if terms <= most:
        terms += sum(len(each.values) for each in selector.match_expressions)
    return terms


def _selector(allowed: RouteNamespaces) -> LabelSelector | None:
    match allowed.from_:
        case "All":
            return EVERYTHING
        case "Same":
            return None
        case "Selector":
            try:
                return from_label_selector(allowed.selector)
            except SelectorError:
                return NOTHING
        case _:
            return NOTHING


class AllowedNamespaces:
    """The namespaces of which any listener of a Gateway allows HTTPRoutes, each looked up once."""

    def __init__(self, gateway: Gateway, view: View) -> None:
        self._own, self._view = gateway.metadata.namespace or "", view
        selected = zip(gateway.spec.listeners, namespaces(gateway), strict=True)
        found = [each for listener, each in selected if "HTTPRoute" in kinds(listener)[0]]
        self._same = None in found
        self._selectors = {each for each in found if each is not None}
        self._known: dict[str, bool] = {}

    def __contains__(self, namespace: str) -> bool:
        known = self._known.get(namespace)
        if known is None:
            known = self._known[namespace] = (self._same and namespace == self._own) or self._selected(namespace)
        return known

    def _selected(self, namespace: str) -> bool:
        labels = self._view.labels(namespace) if self._selectors else None
        return labels is not None and any(each.matches(labels) for each in self._selectors)
