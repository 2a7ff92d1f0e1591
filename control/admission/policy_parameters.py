"""Parameters of admission policies: a user who refers to them must be authorized to read them.

A policy's messages and decisions reveal its parameters, so a policy with a paramKind needs `get` of all objects of
that kind, and a binding with a paramRef needs `get` of the object, or `list` if it has a selector. Upstream checks this in
the storage of these kinds (pkg/registry/admissionregistration/*/authz.go); here it is a plugin that runs at the same point:
the object is valid and not stored yet.
"""

from __future__ import annotations

from control.auth.authorizers import allowed
from control.auth.user import SYSTEM_MASTERS, Authorizer, AuthzAttributes
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.errors import StatusError, forbidden_field, invalid
from kube.json_object import Object

_GROUP = "admissionregistration.k8s.io"
_POLICIES = frozenset({f"validatingadmissionpolicies.{_GROUP}", f"mutatingadmissionpolicies.{_GROUP}"})
_POLICY_OF = {
    f"validatingadmissionpolicybindings.{_GROUP}": f"validatingadmissionpolicies.{_GROUP}",
    f"mutatingadmissionpolicybindings.{_GROUP}": f"mutatingadmissionpolicies.{_GROUP}",
}
_TARGETS = _POLICIES | _POLICY_OF.keys()


class PolicyParameters(Plugin):
    name = "PolicyParameters"
    targets = _TARGETS

    def __init__(self, authorizer: Authorizer, lookup: Lookup) -> None:
        self._authorizer, self._lookup = authorizer, lookup

    def handles(self, attributes: Attributes) -> bool:
        outsider = SYSTEM_MASTERS not in attributes.user.groups
        return outsider and attributes.concern(_TARGETS, "CREATE", "UPDATE")

    async def validate(self, attributes: Attributes) -> None:
        new, old = _spec(attributes.obj), _spec(attributes.old)
        if attributes.resource.target in _POLICIES:
            kind = new.get("paramKind")
            if kind and kind != old.get("paramKind"):
                await self._policy(attributes, kind)
            return
        ref, policy = new.get("paramRef"), new.get("policyName", "")
        if ref and (ref, policy) != (old.get("paramRef"), old.get("policyName", "")):
            await self._binding(attributes, ref, policy)

    async def _policy(self, attributes: Attributes, kind: Object) -> None:
        user, (group, version, plural) = attributes.user, await self._resource(kind)
        if not await allowed(
            self._authorizer,
            AuthzAttributes(
                user=user, verb="get", group=group, version=version, resource=plural, namespace="*", name="*"
            ),
        ):
            what = f"kind={kind.get('kind', '')}, apiVersion={kind.get('apiVersion', '')}"
            why = f'user {user.name} must have "get" permission on all objects of the referenced paramKind ({what})'
            raise _refused(attributes, "spec.paramKind", why)

    async def _binding(self, attributes: Attributes, ref: Object, name: str) -> None:
        user, verb = attributes.user, "get" if ref.get("name") else "list"
        policy = await find(self._lookup, _POLICY_OF[attributes.resource.target], "", name)
        group, version, plural = await self._resource(_spec(policy).get("paramKind"))
        asked = AuthzAttributes(
            user=user,
            verb=verb,
            group=group,
            version=version,
            resource=plural,
            namespace=ref.get("namespace") or "",
            name=ref.get("name") or "",
        )
        if await allowed(self._authorizer, asked):
            return
        why = f'user {user.name} does not have "{verb}" permission on the object referenced by paramRef'
        if policy is None or plural == "*":
            unknown = f"unable to get policy {name}" if policy is None else "unable to resolve paramKind"
            why = (
                f"{unknown} to determine minimum required permissions and user {user.name} does not have"
                f' "{verb}" permission for all groups, versions and resources'
            )
        raise _refused(attributes, "spec.paramRef", why)

    async def _resource(self, kind: Object | None) -> tuple[str, str, str]:
        """Return the group, version and plural name of a kind; "*" for each that is unknown."""
        api_version = (kind or {}).get("apiVersion") or ""
        group, _, version = api_version.rpartition("/")
        if kind is None or not version or "/" in group:
            return "*", "*", "*"
        found = await self._lookup.resource_of(api_version, kind.get("kind") or "")
        return group, version, "*" if found is None else found.plural


def _spec(obj: Object | None) -> Object:
    return (obj or {}).get("spec") or {}


def _refused(attributes: Attributes, path: str, why: str) -> StatusError:
    resource, name = attributes.resource, (attributes.obj or {}).get("metadata", {}).get("name", "")
    return invalid(resource.group, resource.kind, name, [forbidden_field(path, why)])
