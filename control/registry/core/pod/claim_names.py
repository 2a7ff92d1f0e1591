"""Checks of a pod's resource claims: their names, and the requests of its containers.

A pod may have thousands of claims, each of which its containers use: the names are a set, and the message for each one that is
missing shows the first of them. Upstream (validateResourceClaimNames) shows all.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from control.registry.checks import FieldErrors, each
from kube import names
from kube.errors import FieldError, duplicate, required
from kube.json_object import Object

SHOWN = 16
"""Names of claims in the message for one that is missing."""


class ClaimNames:
    """Names of a pod's spec.resourceClaims."""

    def __init__(self, given: Iterable[str] = ()) -> None:
        self._names = frozenset(given)

    @classmethod
    def of(cls, spec: Object) -> ClaimNames:
        return cls(claim.get("name") or "" for claim in spec.get("resourceClaims") or ())

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @cached_property
    def detail(self) -> str:
        """Message for a name that is not among them."""
        known = ": " + ", ".join(sorted(self._names)[:SHOWN]) if self._names else " which is empty"
        more = f" and {len(self._names) - SHOWN} more" if len(self._names) > SHOWN else ""
        return f"must be one of the names in pod.spec.resourceClaims{known}{more}"


def validate_claims(used: list[Object], claims: ClaimNames, path: str) -> FieldErrors:
    """Check what a container uses of its pod's claims: a whole claim, or requests of it, but nothing twice."""
    seen: set[str] = set()
    in_part: set[str] = set()
    """Names of claims of which a request is used."""
    for index, claim in enumerate(used):
        where, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(where)
            continue
        key = f"{name}/{request}" if request else name
        if request:
            yield from each(f"{where}.request", request, names.dns1123_label(request))
        whole = not request and name in in_part
        if name in seen or key in seen or whole:
            yield duplicate(where, name if name in seen or whole else key)
        seen.add(key)
        if request:
            in_part.add(name)
        if name not in claims:
            yield FieldError(where, "Not found", claims.detail, name)
