"""Audit levels of requests: audit.k8s.io/v1 Policy.

The first rule that matches a request gives its level; a request without one is not logged. Levels: None, Metadata (user,
object, time, outcome), Request (and the request's object), RequestResponse (and the response's).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from control.auth.rule_set import path_matches
from control.auth.user import AuthzAttributes

LEVELS = ("None", "Metadata", "Request", "RequestResponse")
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


class PolicyError(ValueError):
    """The policy file cannot be used; the message contains the reason."""


class Verdict(msgspec.Struct, frozen=True):
    """Audit level and stages of a request."""

    level: str
    omit_stages: frozenset[str]
    omit_managed_fields: bool = False


class Rule(msgspec.Struct, frozen=True):
    """One rule of a policy; an empty list matches everything."""

    verdict: Verdict
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: Sequence[Mapping[str, Any]]
    paths: Sequence[str]

    def matches(self, a: AuthzAttributes) -> bool:
        if self.users and a.user.name not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(a.user.groups):
            return False
        if self.verbs and a.verb not in self.verbs:
            return False
        if self.namespaces or self.resources:
            return a.is_resource and self._matches_resource(a)
        if self.paths:
            return not a.is_resource and any(path_matches(p, a.path) for p in self.paths)
        return True

    def _matches_resource(self, a: AuthzAttributes) -> bool:
        if self.namespaces and a.namespace not in self.namespaces:
            return False
        if not self.resources:
            return True
        full = f"{a.resource}/{a.subresource}" if a.subresource else a.resource
        for entry in self.resources:
            if entry.get("group", "") != a.group:
                continue
            names = entry.get("resourceNames") or ()
            if names and a.name not in names:
                continue
            wanted = entry.get("resources") or ()
            if not wanted or any(_names(w, full, a) for w in wanted):
                return True
        return False


def _names(wanted: str, full: str, a: AuthzAttributes) -> bool:
    if wanted in ("*", full):
        return True
    resource, slash, subresource = wanted.partition("/")
    if not slash:
        return False
    return (resource == "*" and subresource == a.subresource) or (subresource == "*" and resource == a.resource)


class Policy:
    """An ordered list of rules."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = rules

    @classmethod
    def parse(cls, text: str | bytes) -> Policy:
        """Read a policy file (YAML); raises PolicyError if it is invalid."""
        try:
            found = msgspec.yaml.decode(text if isinstance(text, bytes) else text.encode())
        except msgspec.DecodeError as error:
            raise PolicyError(f"the audit policy is not YAML: {error}") from error
        if not isinstance(found, dict) or found.get("kind") != "Policy":
            raise PolicyError("the audit policy is not of kind Policy")
        if found.get("apiVersion") != "audit.k8s.io/v1":
            raise PolicyError("the audit policy is not of audit.k8s.io/v1")
        rules = found.get("rules")
        if not rules:
            raise PolicyError("the audit policy has no rules")
        everywhere = frozenset(found.get("omitStages") or ())
        bare = bool(found.get("omitManagedFields"))
        return cls([_rule(number, r, everywhere, bare=bare) for number, r in enumerate(rules)])

    def verdict(self, attributes: AuthzAttributes) -> Verdict | None:
        """Return the level and stages of a request, None if it is not logged."""
        for rule in self._rules:
            if rule.matches(attributes):
                return None if rule.verdict.level == "None" else rule.verdict
        return None


def _rule(number: int, found: Mapping[str, Any], everywhere: frozenset[str], *, bare: bool) -> Rule:
    level, stages = found.get("level"), frozenset(found.get("omitStages") or ()) | everywhere
    if level not in LEVELS:
        raise PolicyError(f"rules[{number}].level: must be one of {', '.join(LEVELS)}")
    unknown = sorted(stages - set(STAGES))
    if unknown:
        raise PolicyError(f"rules[{number}].omitStages: unknown stage {unknown[0]}")
    if found.get("nonResourceURLs") and (found.get("resources") or found.get("namespaces")):
        raise PolicyError(f"rules[{number}]: rules cannot apply to both regular resources and non-resource URLs")
    own = found.get("omitManagedFields")
    return Rule(
        Verdict(level, stages, bare if own is None else bool(own)),
        frozenset(found.get("users") or ()),
        frozenset(found.get("userGroups") or ()),
        frozenset(found.get("verbs") or ()),
        frozenset(found.get("namespaces") or ()),
        found.get("resources") or (),
        found.get("nonResourceURLs") or (),
    )
