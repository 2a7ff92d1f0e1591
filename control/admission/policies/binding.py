"""Matches requests to policies through their bindings, and finds the parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from control.admission.matching import matching_version, selected
from control.event_loop import offload
from control.interfaces import compiled_selectors
from control.interfaces.admission import Attributes
from control.interfaces.lookup import Lookup
from control.policy_expressions.compiled import Policy, Prepared
from kube.json_object import Object
from kube.resources import Resource
from kube.selectors import LabelSelector


class Misconfigured(Exception):
    """A policy or its binding cannot be carried out as it stands."""


class PolicyMatch(msgspec.Struct, frozen=True):
    """A policy that matches a request, the binding, and one parameter object (None: the policy takes none)."""

    policy: Policy
    binding: Object
    resource: Resource
    """The version of the request's resource that the policy is to be shown."""
    params: Object | None = None
    problem: Misconfigured | None = None

    @property
    def binding_name(self) -> str:
        return str(self.binding["metadata"]["name"])


async def policy_matches(
    lookup: Lookup, prepared: Prepared, policies: str, bindings: str, attributes: Attributes
) -> AsyncIterator[PolicyMatch]:
    """Give every policy that concerns a request, once for each binding and parameter; targets name the two kinds."""
    for source in sorted(lookup.list(policies), key=lambda obj: str(obj["metadata"]["name"])):
        name, spec = source["metadata"]["name"], source.get("spec") or {}
        resource = await _matched(lookup, source, "matchConstraints", attributes)
        if resource is None:
            continue
        for binding in sorted(lookup.list(bindings), key=lambda obj: str(obj["metadata"]["name"])):
            given = binding.get("spec") or {}
            if given.get("policyName") != name:
                continue
            narrowed = given.get("matchResources") is not None
            if narrowed and await _matched(lookup, binding, "matchResources", attributes, all_without=True) is None:
                continue
            policy = prepared.known(source)
            if policy is None:  # compiled outside the event loop if its expressions are long
                policy = await offload.evaluate(attributes.user.name, 0, prepared.of, source)
            try:
                async for params in _params(lookup, spec, binding, attributes):
                    yield PolicyMatch(policy, binding, resource, params)
            except Misconfigured as problem:
                yield PolicyMatch(policy, binding, resource, None, problem)


async def _matched(
    lookup: Lookup, owner: Object, field: str, attributes: Attributes, *, all_without: bool = False
) -> Resource | None:
    """Return the version that the MatchResources of a policy or binding matches; `all_without` rules everything matches."""
    match = (owner.get("spec") or {}).get(field) or {}
    rules = _named(match.get("resourceRules"), attributes)
    policy = match.get("matchPolicy") or "Equivalent"
    if all_without and not match.get("resourceRules"):
        found: Resource | None = attributes.requested or attributes.resource
    else:
        found = matching_version(rules, policy, attributes)
    if found is None or matching_version(_named(match.get("excludeResourceRules"), attributes), policy, attributes):
        return None
    return found if await selected(lookup, match, attributes, owner, field) else None


def _named(rules: list[Object] | None, attributes: Attributes) -> list[Object]:
    """Return the rules that are for every name or for the request's."""
    return [rule for rule in rules or () if not rule.get("resourceNames") or attributes.name in rule["resourceNames"]]


async def _params(
    lookup: Lookup, spec: Object, binding: Object, attributes: Attributes
) -> AsyncIterator[Object | None]:
    """Give the parameters of a binding, one after the other (upstream: plugin/policy/generic, CollectParams)."""
    kind, ref = spec.get("paramKind"), (binding.get("spec") or {}).get("paramRef")
    if kind is None or ref is None:
        yield None
        return
    resource = await lookup.resource_of(kind.get("apiVersion", ""), kind.get("kind", ""))
    if resource is None:
        named = f"'{kind.get('apiVersion', '')}, Kind={kind.get('kind', '')}'"
        raise Misconfigured(f"failed to find resource referenced by paramKind: {named}")
    namespace = _namespace_of_params(resource, ref, attributes)
    chosen: str | LabelSelector = ref.get("name") or ""
    if not chosen:
        wanted, user, meta = ref.get("selector") or {}, attributes.user.name, binding["metadata"]
        chosen = await compiled_selectors.kept.of(user, meta, "paramRef.selector", lambda: wanted)
    none = True
    async for params in lookup.select(attributes.user.name, resource, namespace, chosen):
        none = False
        yield params
    if none and ref.get("parameterNotFoundAction") != "Allow":
        raise Misconfigured("no params found for policy binding with `Deny` parameterNotFoundAction")


def _namespace_of_params(resource: Resource, ref: Object, attributes: Attributes) -> str:
    namespace = str(ref.get("namespace") or "")
    if not resource.namespaced:
        if namespace:
            raise Misconfigured("paramRef.namespace must not be provided for a cluster-scoped `paramKind`")
        return ""
    if not namespace and not attributes.namespace:
        raise Misconfigured("cannot use namespaced paramRef in policy binding that matches cluster-scoped resources")
    return namespace or attributes.namespace
