"""Objects that have changed and to which routes, Ingresses and Gateways refer, by the namespaces of these.

Users decide how many routes refer to a Service, and in which other namespaces they are. So handlers of informers record only
what has changed. What refers to it is gone through in steps, for each namespace at its own expense (kube/gateway/steps.py). Of
other namespaces only those count that a ReferenceGrant permits: a reference without one does not depend on its object.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable

from kube.gateway import indexes
from kube.gateway.indexes import BACKEND, BACKEND_NAMESPACE, CERTIFICATE, CERTIFICATE_NAMESPACE, NAMESPACE
from kube.gateway.informers import Informers
from kube.gateway.objects import ReferenceGrant
from kube.gateway.steps import SHARES, completed
from kube.object_names import key_of, namespace_of
from kube.step_limit import Limit, limited

KINDS = {BACKEND: "HTTPRoute", CERTIFICATE: "Gateway"}
"""Kinds of the objects that refer, by indexes of what grants permit."""
INGRESS_BACKEND = "ingress-backend"
"""The index BACKEND of Ingresses, which refer to Services of their own namespace alone."""
_Reference = tuple[str, str]
"""An index and the value that objects with the reference have in it, without their own namespace."""


class References:
    """Goes through what refers to changed objects. `follow` is called with each namespace that has to be processed.

    `forget` is called with the key of each route whose rules depend on one, and `needed` with those of the Gateways that are
    computed from one, whether there are such Gateways or not. `forget_ingress` is called with the key of each Ingress, and
    `ingresses_needed` after all of a namespace.
    """

    def __init__(
        self,
        informers: Informers,
        forget: Callable[[str], None],
        needed: Callable[[str], None],
        follow: Callable[[str], None],
        forget_ingress: Callable[[str], None],
        ingresses_needed: Callable[[], None],
    ) -> None:
        self._routes, self._gateways, self._grants = informers.routes, informers.gateways, informers.grants
        self._ingresses = informers.ingresses
        self._forget, self._needed, self._follow = forget, needed, follow
        self._forget_ingress, self._ingresses_needed = forget_ingress, ingresses_needed
        self._changed: dict[str, dict[_Reference, None]] = {}

    def __len__(self) -> int:
        return len(self._changed)

    def object_changed(self, index: str, key: str) -> None:
        """Record that a Service (BACKEND) or a certificate (CERTIFICATE) has changed."""
        namespace = key.partition("/")[0]
        self._record(namespace, (index, key))
        if index == BACKEND:
            self._record(namespace, (INGRESS_BACKEND, key))

    def grant_changed(self, grants: Iterable[ReferenceGrant]) -> None:
        """Record that a grant has changed, by its old and new state."""
        for source, target in {(each.namespace, namespace_of(grant)) for grant in grants for each in grant.spec.from_}:
            if source != target:
                self._record(source, (BACKEND_NAMESPACE, target))
                self._record(source, (CERTIFICATE_NAMESPACE, target))

    def labels_changed(self, namespace: str) -> None:
        """Record that the labels of a namespace have changed."""
        self._record(namespace, (NAMESPACE, namespace))

    def _record(self, namespace: str, reference: _Reference) -> None:
        if self._any(namespace, reference) or (reference[0] in KINDS and self._grants.has_index(NAMESPACE, namespace)):
            self._changed.setdefault(namespace, {})[reference] = None
            self._follow(namespace)

    def _any(self, namespace: str, reference: _Reference) -> bool:
        if reference[0] == INGRESS_BACKEND:
            return self._ingresses.has_index(BACKEND, reference[1])
        of_gateways = reference[0] in (CERTIFICATE, CERTIFICATE_NAMESPACE)
        return (self._gateways if of_gateways else self._routes).has_index(reference[0], _value(namespace, reference))

    async def process(self, namespace: str) -> None:
        """Go through what in a namespace refers to changed objects."""
        await limited(completed(self._steps(namespace)), Limit(SHARES, namespace))

    def _steps(self, namespace: str) -> Generator[int, None, None]:
        changed = self._changed.get(namespace, {})
        while changed:
            reference = next(iter(changed))
            del changed[reference]  # it may change again meanwhile
            try:
                yield from self._referring(namespace, reference)
            except BaseException:
                changed[reference] = None
                raise
        if self._changed.get(namespace) is changed:
            del self._changed[namespace]

    def _referring(self, namespace: str, reference: _Reference) -> Generator[int, None, None]:
        index, target = reference
        value = _value(namespace, reference)
        if index == INGRESS_BACKEND:
            for ingress in self._ingresses.by_index(BACKEND, target):
                self._forget_ingress(key_of(ingress))
                yield 1
            self._ingresses_needed()
        elif index in (CERTIFICATE, CERTIFICATE_NAMESPACE):
            for gateway in self._gateways.by_index(index, value):
                self._needed(key_of(gateway))
                yield 1
        else:
            for route in self._routes.by_index(index, value):
                if index != NAMESPACE:
                    self._forget(key_of(route))
                for key in indexes.parents(route):
                    self._needed(key)
                yield 1 + len(route.spec.parent_refs)
        if index in KINDS and target.partition("/")[0] == namespace:
            yield from self._elsewhere(namespace, reference)

    def _elsewhere(self, namespace: str, reference: _Reference) -> Generator[int, None, None]:
        """Record a changed object for the other namespaces that may refer to it."""
        kind, sources = KINDS[reference[0]], set[str]()
        for grant in self._grants.by_index(NAMESPACE, namespace):
            sources.update(each.namespace for each in grant.spec.from_ if each.kind == kind)
            yield 1
        for source in sources - {namespace}:
            if self._any(source, reference):
                self._record(source, reference)
            yield 1


def _value(namespace: str, reference: _Reference) -> str:
    index, target = reference
    return namespace if index == NAMESPACE else indexes.referring(namespace, target)
