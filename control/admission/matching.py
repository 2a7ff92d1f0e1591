"""Matches requests to webhooks: rules, scope, equivalent versions, and the selectors of namespaces and objects.

The rules are upstream's (apiserver/pkg/admission/plugin/webhook/predicates and generic/webhook.go). Conditions, which cost an
evaluation, are asked by the caller afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from control.admission import object_work
from control.admission.versions import versions_of
from control.interfaces import compiled_selectors
from control.interfaces.admission import Attributes
from control.interfaces.lookup import Lookup, find
from kube.json_object import Object
from kube.resources import Resource
from kube.selectors import LabelSelector

OWN_GROUP = "admissionregistration.k8s.io"


class Invocation(msgspec.Struct, frozen=True):
    """A webhook to call, and the version of the resource to send."""

    configuration: str
    index: int
    hook: Object
    resource: Resource

    @property
    def name(self) -> str:
        return str(self.hook["name"])

    @property
    def uid(self) -> str:
        """Identity among the webhooks of all configurations."""
        return f"{self.configuration}/{self.name}/{self.index}"


def exempt(attributes: Attributes) -> bool:
    """Return whether webhooks are exempt: they must not be able to block changes of webhook configurations."""
    return attributes.resource.group == OWN_GROUP


async def concerned(lookup: Lookup, configurations: Iterable[Object], attributes: Attributes) -> list[Invocation]:
    """Return the webhooks that a request concerns, in the order of their configurations' names."""
    found: list[Invocation] = []
    for configuration in sorted(configurations, key=lambda obj: str(obj["metadata"]["name"])):
        name = configuration["metadata"]["name"]
        for index, hook in enumerate(configuration.get("webhooks") or ()):
            resource = matching_version(hook.get("rules") or (), hook.get("matchPolicy", "Equivalent"), attributes)
            if resource is not None and await selected(lookup, hook, attributes, configuration, f"webhooks[{index}]"):
                found.append(Invocation(name, index, hook, resource))
    return found


def matching_version(rules: Iterable[Object], policy: str, attributes: Attributes) -> Resource | None:
    """Return the version of the request's resource that a rule names; None if no rule concerns it."""
    asked = attributes.requested or attributes.resource
    rules = list(rules)
    if any(_matches(rule, attributes, asked) for rule in rules):
        return asked
    if policy == "Exact":
        return None
    for other in versions_of(asked):
        if other.api_version != asked.api_version and any(_matches(rule, attributes, other) for rule in rules):
            return other
    return None


def _matches(rule: Object, attributes: Attributes, resource: Resource) -> bool:
    return (
        _one(rule.get("operations"), attributes.operation)
        and _one(rule.get("apiGroups"), resource.group)
        and _one(rule.get("apiVersions"), resource.version)
        and _in_scope(rule.get("scope") or "*", attributes)
        and any(_names(text, resource.plural, attributes.subresource) for text in rule.get("resources") or ())
    )


def _one(words: Iterable[str] | None, word: str) -> bool:
    return any(candidate in ("*", word) for candidate in words or ())


def _in_scope(scope: str, attributes: Attributes) -> bool:
    if scope == "*":
        return True
    # A Namespace is cluster-scoped although requests for one carry its name as their namespace.
    namespaced = attributes.resource.namespaced
    return namespaced if scope == "Namespaced" else not namespaced


def _names(text: str, plural: str, subresource: str) -> bool:
    """Match "pods", "pods/log", "pods/*", "*/status", "*" and "*/*"."""
    wanted, _, part = text.partition("/")
    return wanted in ("*", plural) and (part == subresource or part == "*")


async def selected(lookup: Lookup, match: Object, attributes: Attributes, owner: Object, place: str) -> bool:
    """Return whether a request is among those that `namespaceSelector` and `objectSelector` leave.

    `match` stands at a place of `owner`, whose version tells whether its selectors are compiled already.
    """
    user = attributes.user.name
    if selector := _choosing(match.get("namespaceSelector")):
        named, shown = await _namespace(lookup, attributes)
        if named and not (await _compiled(user, owner, f"{place}.namespaceSelector", selector)).matches(_labels(shown)):
            return False
    selector = _choosing(match.get("objectSelector"))
    if selector is None:
        return True
    objects = [obj for obj in (await object_work.decoded(attributes), attributes.old) if obj and "metadata" in obj]
    wanted = await _compiled(user, owner, f"{place}.objectSelector", selector)
    return any(wanted.matches(_labels(obj)) for obj in objects)


async def _compiled(user: str, owner: Object, place: str, selector: Object) -> LabelSelector:
    return await compiled_selectors.kept.of(user, owner["metadata"], place, lambda: selector)


def _choosing(selector: Object | None) -> Object | None:
    """Return a selector that does not take everything."""
    return selector if selector and (selector.get("matchLabels") or selector.get("matchExpressions")) else None


async def _namespace(lookup: Lookup, attributes: Attributes) -> tuple[bool, Object | None]:
    """Return whether the labels of a namespace count, and the namespace whose labels they are.

    A Namespace that is created or updated is judged as it is to be; a deletion or a subresource changes no labels, so the
    stored one counts (apiserver/pkg/admission/plugin/webhook/predicates/namespace, GetNamespaceLabels).
    """
    if attributes.concern("namespaces", "CREATE", "UPDATE"):
        return True, attributes.obj
    if attributes.resource.target == "namespaces":
        return True, attributes.old or await find(lookup, "namespaces", "", attributes.name)
    if attributes.namespace:
        return True, await find(lookup, "namespaces", "", attributes.namespace)
    return False, None  # a cluster-scoped object is never passed over for a namespace's labels


def _labels(obj: Object | None) -> dict[str, str]:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}
