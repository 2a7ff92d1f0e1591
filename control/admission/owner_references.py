"""OwnerReferencesPermissionEnforcement (off by default): changes of an object's owner references require permission to delete
the object.

An owner reference lets the garbage collector delete; blockOwnerDeletion blocks another's deletion and so needs the right
to set that owner's finalizers.
"""

from __future__ import annotations

from control.admission.refusal import refuse
from control.auth.authorizers import allowed
from control.auth.user import Authorizer, AuthzAttributes
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from kube.json_object import Object


class OwnerReferencesPermissionEnforcement(Plugin):
    name = "OwnerReferencesPermissionEnforcement"

    def __init__(self, authorizer: Authorizer, lookup: Lookup) -> None:
        self._authorizer, self._lookup = authorizer, lookup

    def handles(self, attributes: Attributes) -> bool:
        # A pod's owners cannot be changed through its status, and old kubelets send others there.
        free = attributes.resource.target == "pods" and attributes.subresource == "status"
        return attributes.operation in ("CREATE", "UPDATE") and not free

    async def validate(self, attributes: Attributes) -> None:
        new, old = _owners(attributes.obj), _owners(attributes.old)
        if new == old:
            return
        a, r = attributes, attributes.requested or attributes.resource
        asked = AuthzAttributes(
            user=a.user,
            verb="delete",
            group=r.group,
            version=r.version,
            resource=r.plural,
            subresource=a.subresource,
            namespace=a.namespace,
            name=a.name,
        )
        if a.old is not None and not await allowed(self._authorizer, asked):
            raise refuse(a, "cannot set an ownerRef on a resource you can't delete")
        before = {o.get("uid") for o in old if o.get("blockOwnerDeletion")}
        blocking = [o for o in new if o.get("blockOwnerDeletion") and o.get("uid") not in before]
        anything = AuthzAttributes(
            user=a.user, verb="update", group="*", version="*", resource="*", subresource="finalizers", name="*"
        )
        if not blocking or await allowed(self._authorizer, anything):
            return
        for owner in blocking:
            await self._check_finalizers(a, owner)

    async def _check_finalizers(self, a: Attributes, owner: Object) -> None:
        """Raise 403 if a user may not set the finalizers of an owner."""
        version, kind = owner.get("apiVersion", ""), owner.get("kind", "")
        found = await self._lookup.resource_of(version, kind)
        if found is None:
            why = f"cannot find RESTMapping for APIVersion {version} Kind {kind}"
            raise refuse(a, f"cannot set blockOwnerDeletion in this case because {why}")
        namespace, name = a.namespace if found.namespaced else "", owner.get("name", "")
        asked = AuthzAttributes(
            user=a.user,
            verb="update",
            group=found.group,
            version=found.version,
            resource=found.plural,
            subresource="finalizers",
            namespace=namespace,
            name=name,
        )
        if not await allowed(self._authorizer, asked):
            why = "an ownerReference refers to a resource you can't set finalizers on"
            raise refuse(a, f"cannot set blockOwnerDeletion if {why}")


def _owners(obj: Object | None) -> list[Object]:
    return list((obj or {}).get("metadata", {}).get("ownerReferences") or [])
