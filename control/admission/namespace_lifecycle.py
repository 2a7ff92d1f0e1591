"""NamespaceLifecycle: nothing is created in a namespace that is not there or is going away, and some namespaces stay.

A namespace made a moment ago may not be in the watch cache yet, so a miss asks the store. One that another server has deleted
may still be there: what is created in it is taken back (control.registry.deleted_namespaces).
"""

from __future__ import annotations

from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from control.registry.deleted_namespaces import add_cause, is_terminating, terminating_text
from kube.errors import not_found

PROTECTED = frozenset({"default", "kube-system", "kube-public"})


class NamespaceLifecycle(Plugin):
    name = "NamespaceLifecycle"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        if attributes.resource.target == "namespaces":
            return attributes.operation == "DELETE" and not attributes.subresource
        return attributes.operation == "CREATE" and bool(attributes.namespace) and not _is_review(attributes)

    async def admit(self, attributes: Attributes) -> None:
        if attributes.resource.target == "namespaces":
            if attributes.name in PROTECTED:
                raise refuse(attributes, "this namespace may not be deleted")
            return
        name = attributes.namespace
        namespace = await find(self._lookup, "namespaces", "", name)
        if namespace is None:
            raise not_found("", "namespaces", name)
        if is_terminating(namespace):
            raise add_cause(refuse(attributes, terminating_text(name)), name)


def _is_review(attributes: Attributes) -> bool:
    """Asking about access to a namespace is no content of it."""
    return attributes.resource.target == "localsubjectaccessreviews.authorization.k8s.io"
