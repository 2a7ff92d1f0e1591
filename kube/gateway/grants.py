"""Permission of references to objects in other namespaces, by ReferenceGrants in the namespace of the object.

Users decide how many grants there are, and how many references. So the grants for one namespace's objects of a kind are read
once, and what they permit is kept until one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kube.gateway.objects import GROUP, ReferenceGrant

MOST_NAMES = 100_000
"""Names that are kept; beyond, only those that were read last."""
_Source = tuple[str, str]
"""Kind and namespace of the objects that refer."""
_Targets = frozenset[tuple[str, str]]
"""Kinds and names of the objects that may be referred to; an empty name is any."""


class Grants:
    """References that are permitted; `find` returns the grants in a namespace."""

    def __init__(self, find: Callable[[str], Iterable[ReferenceGrant]]) -> None:
        self._find = find
        self._known: dict[str, dict[_Source, _Targets]] = {}
        """By namespaces of grants."""
        self._names = 0

    def permitted(self, kind: str, namespace: str, target_kind: str, target_namespace: str, target: str) -> bool:
        """Return whether an object of the Gateway API may refer to an object of the core group."""
        if namespace == target_namespace:
            return True
        found = self._targets((kind, namespace), target_namespace)
        return (target_kind, target) in found or (target_kind, "") in found

    def forget(self, namespace: str) -> None:
        """Read the grants in a namespace again, of which one has changed."""
        self._names -= sum(1 + len(each) for each in self._known.pop(namespace, {}).values())

    def _targets(self, source: _Source, namespace: str) -> _Targets:
        known = self._known.get(namespace, {}).get(source)
        if known is not None:
            return known
        found = frozenset(target for grant in self._find(namespace) for target in _targets_of(grant, source))
        if self._names + len(found) > MOST_NAMES:
            self._known.clear()
            self._names = 0
        self._names += len(found) + 1
        self._known.setdefault(namespace, {})[source] = found
        return found


def _targets_of(grant: ReferenceGrant, source: _Source) -> Iterable[tuple[str, str]]:
    if any(each.group == GROUP and (each.kind, each.namespace) == source for each in grant.spec.from_):
        return ((each.kind, each.name) for each in grant.spec.to if not each.group)
    return ()
