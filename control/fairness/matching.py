"""Matches a request to its FlowSchema: the first by precedence whose rules have its user and its verb and resource.

The rules are those of upstream's flowcontrol/rule.go; a schema is compiled into a predicate once, and `Fairness`
caches the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from control.auth.user import UserInfo
from control.interfaces.requestinfo import RequestInfo
from kube.json_object import Object

Matches = Callable[[UserInfo, RequestInfo], bool]
ACCOUNT = "system:serviceaccount:"


def compiled(schema: Object) -> Matches:
    """Return the predicate of a FlowSchema."""
    rules = [
        (
            [_subject(subject) for subject in rule.get("subjects") or ()],
            [_resource(part) for part in rule.get("resourceRules") or ()],
            [_path(part) for part in rule.get("nonResourceRules") or ()],
        )
        for rule in (schema.get("spec") or {}).get("rules") or ()
    ]

    def matches(user: UserInfo, info: RequestInfo) -> bool:
        for subjects, resources, paths in rules:
            if any(subject(user) for subject in subjects):
                if info.is_resource and any(part(info) for part in resources):
                    return True
                if not info.is_resource and any(part(info) for part in paths):
                    return True
        return False

    return matches


def by_precedence(schemas: Iterable[Object]) -> list[Object]:
    """Return FlowSchemas in the order in which they are matched."""
    return sorted(schemas, key=lambda s: (s["spec"].get("matchingPrecedence", 1000), s["metadata"]["name"]))


def _subject(subject: Object) -> Callable[[UserInfo], bool]:
    kind = subject.get("kind")
    if kind == "User":
        name = (subject.get("user") or {}).get("name", "")
        return lambda user: name in ("*", user.name)
    if kind == "Group":
        group = (subject.get("group") or {}).get("name", "")
        return lambda user: group == "*" or group in user.groups
    account = subject.get("serviceAccount") or {}
    namespace, name = account.get("namespace", ""), account.get("name", "")
    if name == "*":
        return lambda user: user.name.startswith(f"{ACCOUNT}{namespace}:")
    return lambda user: user.name == f"{ACCOUNT}{namespace}:{name}"


def _resource(rule: Object) -> Callable[[RequestInfo], bool]:
    verbs, groups = _set(rule, "verbs"), _set(rule, "apiGroups")
    resources, namespaces = _set(rule, "resources"), _set(rule, "namespaces")
    cluster = bool(rule.get("clusterScope"))

    def matches(info: RequestInfo) -> bool:
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        if not (_has(verbs, info.verb) and _has(groups, info.group) and _has(resources, resource)):
            return False
        return _has(namespaces, info.namespace) if info.namespace else cluster

    return matches


def _path(rule: Object) -> Callable[[RequestInfo], bool]:
    verbs, paths = _set(rule, "verbs"), rule.get("nonResourceURLs") or ()

    def matches(info: RequestInfo) -> bool:
        return _has(verbs, info.verb) and any(_under(info.path, path) for path in paths)

    return matches


def _under(path: str, wanted: str) -> bool:
    if wanted == "*" or path == wanted:
        return True
    return wanted.endswith("/*") and path.startswith(wanted[:-1])


def _set(rule: Object, part: str) -> frozenset[str]:
    return frozenset(rule.get(part) or ())


def _has(values: frozenset[str], value: str) -> bool:
    return value in values or "*" in values
