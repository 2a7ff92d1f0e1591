"""NamespaceAutoProvision and NamespaceExists (off by default): a namespace that is missing is made, or insisted upon.

Making it is a write of the server's own, so a dry run makes none. NamespaceLifecycle, which stands between the two, refuses
what is created in a namespace that is missing; NamespaceExists also refuses updates and deletions there.
"""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.errors import StatusError, not_found


def _inside(attributes: Attributes) -> bool:
    return bool(attributes.namespace) and attributes.resource.target != "namespaces"


class NamespaceAutoProvision(Plugin):
    name = "NamespaceAutoProvision"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.operation == "CREATE" and not attributes.dry_run and _inside(attributes)

    async def admit(self, attributes: Attributes) -> None:
        name = attributes.namespace
        if await find(self._lookup, "namespaces", "", name) is not None:
            return
        try:
            await self._lookup.create(
                "namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            )
        except StatusError as error:
            if not error.already_exists:
                raise
        await self._lookup.fresh("namespaces", "", name)


class NamespaceExists(Plugin):
    name = "NamespaceExists"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.operation in ("CREATE", "UPDATE", "DELETE") and _inside(attributes)

    async def validate(self, attributes: Attributes) -> None:
        if await find(self._lookup, "namespaces", "", attributes.namespace) is None:
            raise not_found("", "namespaces", attributes.namespace)
