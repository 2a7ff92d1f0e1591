"""The review APIs as plain functions: may they, who is this, who am I, what may I.

Each takes what the request's spec says and returns the `status` to answer with; nothing is stored.
"""

from __future__ import annotations

from typing import Any

from control.auth.node import node_of
from control.auth.setup import Auth
from control.auth.user import SYSTEM_MASTERS, AuthzAttributes, Credentials, Decision, UserInfo, user_info
from kube.errors import StatusError, bad_request, invalid, invalid_value

Object = dict[str, Any]


async def token_review(auth: Auth, spec: Object) -> Object:
    """Return a TokenReview's status; 400 without a token."""
    token = spec.get("token", "")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    wanted = spec.get("audiences") or list(auth.service_accounts.audiences)
    try:
        account = auth.service_accounts.review(token, wanted)
        if account:
            from control.auth.authenticators import with_authenticated

            return _authenticated(with_authenticated(account[0]), account[1])
        user = await auth.authenticator.authenticate(Credentials(token=token))
    except StatusError as error:
        if error.code != 401:
            raise
        return {"user": {}, "error": "[invalid bearer token, token lookup failed]"}
    shared = [a for a in wanted if a in auth.service_accounts.audiences]
    if user is None or not shared:
        return {"user": {}, "error": "token audiences do not match the expected audiences"}
    return _authenticated(user, shared)


def _authenticated(user: UserInfo, audiences: list[str]) -> Object:
    return {"authenticated": True, "user": user_info(user), "audiences": audiences}


def self_subject_review(user: UserInfo) -> Object:
    """Return a SelfSubjectReview's status: what `kubectl auth whoami` shows."""
    return {"userInfo": user_info(user)}


def subject_access_review(auth: Auth, spec: Object, kind: str = "SubjectAccessReview") -> Object:
    """Return the status of a (Local)SubjectAccessReview; 422 where the spec says neither who nor what."""
    extra = {k.lower(): tuple(v) for k, v in (spec.get("extra") or {}).items()}
    user = UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)
    if not user.name and not user.groups:
        errors = [invalid_value("spec.user", "", "at least one of user or group must be specified")]
        raise invalid("authorization.k8s.io", kind, "", errors)
    return access(auth, user, spec, kind)


def access(auth: Auth, user: UserInfo, spec: Object, kind: str = "SelfSubjectAccessReview") -> Object:
    """Return a SelfSubjectAccessReview's status for a user."""
    resource, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (resource is None) == (path is None):
        shown = None
        what = "cannot specify both nonResourceAttributes and resourceAttributes"
        if resource is None:
            what = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise invalid("authorization.k8s.io", kind, "", [invalid_value("spec.resourceAttributes", shown, what)])
    attributes = review_attributes(user, spec)
    decision, reason = auth.authorizer.authorize(attributes)
    status: Object = {"allowed": decision is Decision.ALLOW}
    if decision is Decision.DENY:
        status["denied"] = True
    if decision is Decision.ALLOW and not reason:
        reason = auth.rbac.why(attributes)
    if reason:
        status["reason"] = reason
    return status


def review_attributes(user: UserInfo, spec: Object) -> AuthzAttributes:
    """Read what a review asks about."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return AuthzAttributes(user, path.get("verb", ""), path=path.get("path", ""))
    r = spec["resourceAttributes"]
    return AuthzAttributes(
        user,
        r.get("verb", ""),
        r.get("group", ""),
        r.get("version", ""),
        r.get("resource", ""),
        r.get("subresource", ""),
        r.get("namespace", ""),
        r.get("name", ""),
        field_selector=_requirements(r.get("fieldSelector")),
        label_selector=(r.get("labelSelector") or {}).get("rawSelector", ""),
    )


def _requirements(selector: Object | None) -> str:
    if not selector:
        return ""
    if selector.get("rawSelector"):
        return str(selector["rawSelector"])
    single = [r for r in selector.get("requirements") or () if r.get("operator") == "In" and len(r.get("values")) == 1]
    return ",".join(f"{r['key']}={r['values'][0]}" for r in single)


def self_subject_rules_review(auth: Auth, user: UserInfo, namespace: str) -> Object:
    """Return a SelfSubjectRulesReview's status: what `kubectl auth can-i --list` shows."""
    if not namespace:
        raise bad_request("no namespace on request")
    rules = auth.rbac.rules_for(user, namespace)
    if SYSTEM_MASTERS in user.groups:
        rules = [*_EVERYTHING, *rules]
    status: Object = {
        "resourceRules": [
            {k: r[k] for k in ("verbs", "apiGroups", "resources", "resourceNames") if r.get(k)}
            for r in rules
            if r.get("resources")
        ],
        "nonResourceRules": [
            {"verbs": r["verbs"], "nonResourceURLs": r["nonResourceURLs"]} for r in rules if r.get("nonResourceURLs")
        ],
        "incomplete": False,
    }
    node = node_of(user)
    if node:
        status["incomplete"] = True
        status["evaluationError"] = f"node authorizer does not support user rule resolution: {node}"
    return status


_EVERYTHING = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
