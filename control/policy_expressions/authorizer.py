"""The `authorizer` variable: expressions may check permissions of the user (apiserver/pkg/cel/library/authz.go)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from control.auth.user import Authorizer, AuthzAttributes, Decision, UserInfo
from control.cel.signatures import Overload, Signatures
from control.cel.types import BOOL, STRING, Type

_PREFIX = "kubernetes.authorization."
PATH, GROUP, RESOURCE = Type(_PREFIX + "PathCheck"), Type(_PREFIX + "GroupCheck"), Type(_PREFIX + "ResourceCheck")
DECISION = Type(_PREFIX + "Decision")
AUTHORIZER = Type(
    "object", name=_PREFIX + "Authorizer", fields=lambda: {"requestResource": ("requestResource", RESOURCE)}
)


class Check(msgspec.Struct, frozen=True):
    """Parameters of an authorization check; the result of `group`, `resource`, `path` and those after them."""

    authorizer: Authorizer
    attributes: AuthzAttributes


class Answer(msgspec.Struct, frozen=True):
    """The result of `check`."""

    decision: Decision
    reason: str


class AuthorizerValue:
    """The value of `authorizer`."""

    def __init__(self, authorizer: Authorizer, user: UserInfo, request: AuthzAttributes) -> None:
        self.authorizer, self.user, self._request = authorizer, user, request

    def __getitem__(self, name: str) -> Check:
        assert name == "requestResource"
        return Check(self.authorizer, msgspec.structs.replace(self._request, user=self.user))

    def start(self, **more: Any) -> Check:
        return Check(self.authorizer, AuthzAttributes(user=self.user, verb="", **more))


def _changed(name: str) -> Any:
    return lambda check, value: Check(check.authorizer, msgspec.structs.replace(check.attributes, **{name: value}))


def _check(check: Check, verb: str) -> Answer:
    return Answer(*check.authorizer.authorize(msgspec.structs.replace(check.attributes, verb=verb)))


def _service_account(value: AuthorizerValue, namespace: str, name: str) -> AuthorizerValue:
    groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated")
    user = UserInfo(f"system:serviceaccount:{namespace}:{name}", "", groups)
    return AuthorizerValue(value.authorizer, user, value._request)


FUNCTIONS: Mapping[str, Any] = {
    "path": lambda value, path: value.start(path=path),
    "group": lambda value, group: value.start(group=group, version="*"),
    "serviceAccount": _service_account,
    "resource": _changed("resource"),
    "subresource": _changed("subresource"),
    "namespace": _changed("namespace"),
    "name": _changed("name"),
    "fieldSelector": _changed("field_selector"),
    "labelSelector": _changed("label_selector"),
    "check": _check,
    "allowed": lambda answer: answer.decision is Decision.ALLOW,
    "reason": lambda answer: answer.reason,
    "errored": lambda answer: False,
    "error": lambda answer: "",
}
SIGNATURES: Signatures = {
    "path": [Overload((AUTHORIZER, STRING), PATH, True)],
    "group": [Overload((AUTHORIZER, STRING), GROUP, True)],
    "serviceAccount": [Overload((AUTHORIZER, STRING, STRING), AUTHORIZER, True)],
    "resource": [Overload((GROUP, STRING), RESOURCE, True)],
    **{
        name: [Overload((RESOURCE, STRING), RESOURCE, True)]
        for name in ("subresource", "namespace", "name", "fieldSelector", "labelSelector")
    },
    "check": [Overload((PATH, STRING), DECISION, True), Overload((RESOURCE, STRING), DECISION, True)],
    "allowed": [Overload((DECISION,), BOOL, True)],
    "reason": [Overload((DECISION,), STRING, True)],
    "errored": [Overload((DECISION,), BOOL, True)],
    "error": [Overload((DECISION,), STRING, True)],
}
