"""OwnerReferencesPermissionEnforcement (off by default): who may not delete an object may not change who owns it.

An owner reference lets the garbage collector delete; blockOwnerDeletion holds up another's deletion and so needs the right
to set that owner's finalizers.
"""

from __future__ import annotations

from control.admission.lookup import Object
from control.admission.plugin import Attributes, Plugin
from control.admission.refusal import refuse
from control.auth.authorizers import allowed
from control.auth.user import Authorizer, AuthzAttributes
from kube import resources


class OwnerReferencesPermissionEnforcement(Plugin):
    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, attributes: Attributes) -> bool:
        return attributes.operation in ("CREATE", "UPDATE") and attributes.resource.target != "pods/eviction"

    async def validate(self, attributes: Attributes) -> None:
        new, old = _owners(attributes.obj), _owners(attributes.old)
        if new == old:
            return
        a, r = attributes, attributes.resource
        if a.old is not None and not await self._may(a, "delete", r.group, r.version, r.plural, a.subresource, a.name):
            raise refuse(a, "cannot set an ownerRef on a resource you can't delete")
        blocked = {o.get("uid") for o in old if o.get("blockOwnerDeletion")}
        for owner in new:
            if not owner.get("blockOwnerDeletion") or owner.get("uid") in blocked:
                continue
            found = resources.by_kind(owner.get("apiVersion", ""), owner.get("kind", ""))
            name = owner.get("name", "")
            if found is None or not await self._may(
                a, "update", found.group, found.version, found.plural, "finalizers", name
            ):
                raise refuse(
                    a,
                    "cannot set blockOwnerDeletion if an ownerReference refers to a resource you can't set finalizers on",
                )

    async def _may(
        self, a: Attributes, verb: str, group: str, version: str, plural: str, subresource: str, name: str
    ) -> bool:
        asked = AuthzAttributes(a.user, verb, group, version, plural, subresource, a.namespace, name)
        return await allowed(self._authorizer, asked)


def _owners(obj: Object | None) -> list[Object]:
    return list((obj or {}).get("metadata", {}).get("ownerReferences") or [])
