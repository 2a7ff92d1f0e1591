"""ABAC authorizer (--authorization-mode=ABAC): a file with a policy in JSON on each line.

    {"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy",
     "spec": {"user": "jane", "namespace": "shop", "resource": "pods", "apiGroup": "", "readonly": true}}

The file is read once at the start, as upstream. `*` matches everything; a policy with both user and group requires both. A
policy allows resources (namespace, resource, apiGroup) or other paths (nonResourcePath, which may end in `*`), with `readonly`
only get, list and watch. Lines that begin with # are comments.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from control.auth.authorizers import Answer
from control.auth.fields import ConfigurationError, known
from control.auth.user import Authorizer, AuthzAttributes, Decision, UserInfo

VERSION, KIND = "abac.authorization.kubernetes.io/v1beta1", "Policy"
_READS = frozenset({"get", "list", "watch"})
_TEXTS = ("user", "group", "namespace", "resource", "apiGroup", "nonResourcePath")


class Policy(msgspec.Struct, frozen=True):
    """One line."""

    user: str = ""
    group: str = ""
    namespace: str = ""
    resource: str = ""
    api_group: str = ""
    path: str = ""
    readonly: bool = False

    def allows(self, asked: AuthzAttributes) -> bool:
        if not self.is_about(asked.user) or (self.readonly and asked.verb not in _READS):
            return False
        if asked.is_resource:
            pairs = ((self.namespace, asked.namespace), (self.resource, asked.resource), (self.api_group, asked.group))
            return all(wanted in ("*", value) for wanted, value in pairs)
        if self.path.endswith("*"):
            return asked.path.startswith(self.path.rstrip("*"))
        return self.path == asked.path

    def is_about(self, user: UserInfo) -> bool:
        if self.user and self.user not in ("*", user.name):
            return False
        if self.group and self.group != "*" and self.group not in user.groups:
            return False
        return bool(self.user or self.group)

    def rules(self) -> list[dict[str, list[str]]]:
        """Return what it allows as rules of a role."""
        found: list[dict[str, list[str]]] = []
        verbs = sorted(_READS) if self.readonly else ["*"]
        if self.resource:
            found.append({"verbs": verbs, "apiGroups": [self.api_group], "resources": [self.resource]})
        if self.path:
            found.append({"verbs": verbs, "nonResourceURLs": [self.path]})
        return found


class ABACAuthorizer(Authorizer):
    """Allows what one of the policies allows, and has no opinion of the rest."""

    def __init__(self, policies: tuple[Policy, ...]) -> None:
        self._policies = policies

    def authorize(self, attributes: AuthzAttributes) -> Answer:
        if any(policy.allows(attributes) for policy in self._policies):
            return Decision.ALLOW, ""
        return Decision.NO_OPINION, "No policy matched."

    def rules_for(self, user: UserInfo, namespace: str) -> list[dict[str, list[str]]]:
        """Return what a user may do in a namespace, as rules of a role."""
        mine = (policy for policy in self._policies if policy.is_about(user))
        return [rule for policy in mine if policy.namespace in ("*", namespace) for rule in policy.rules()]


def load(path: Path) -> ABACAuthorizer:
    """Read a policy file; raises ConfigurationError with the line, OSError."""
    found = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        text = line.strip()
        if text and not text.startswith(b"#"):
            try:
                found.append(parse(text))
            except (ConfigurationError, msgspec.DecodeError) as error:
                shown = text.decode(errors="replace")
                raise ConfigurationError(
                    f"error reading policy file {path}, line {number}: {shown}: {error}"
                ) from error
    return ABACAuthorizer(tuple(found))


def parse(text: bytes) -> Policy:
    """Read one policy; raises ConfigurationError, msgspec.DecodeError."""
    document: Any = msgspec.json.decode(text)
    known(document, "", ("apiVersion", "kind", "spec"))
    if (document.get("apiVersion"), document.get("kind")) != (VERSION, KIND):
        raise ConfigurationError(f"must be a {KIND} of {VERSION}")
    spec = document.get("spec") or {}
    known(spec, "spec", (*_TEXTS, "readonly"))
    user, group, namespace, resource, api_group, path = texts = [spec.get(name, "") for name in _TEXTS]
    if not all(isinstance(value, str) for value in texts) or not isinstance(spec.get("readonly", False), bool):
        raise ConfigurationError("spec: names must be strings, and readonly true or false")
    return Policy(user, group, namespace, resource, api_group, path, spec.get("readonly", False))
