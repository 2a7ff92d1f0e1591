"""The review APIs as plain functions: SubjectAccessReview, TokenReview, SelfSubjectReview, SelfSubjectRulesReview and their
like.

Each takes what the request's spec says and returns the `status` to answer with; nothing is stored.
"""

from __future__ import annotations

from collections.abc import Iterator

from control.auth.authenticators import with_authenticated
from control.auth.authorizers import decide
from control.auth.node import node_of
from control.auth.rule_set import count_values
from control.auth.setup import Auth
from control.auth.user import SYSTEM_MASTERS, AuthzAttributes, Credentials, Decision, UserInfo, user_info
from control.event_loop.pacing import TimeSlice
from control.event_loop.weight import VALUE
from kube.client_waits import Waiting
from kube.errors import StatusError, bad_request
from kube.json_object import Object

MOST_RULES_WEIGHT = 4 << 20
"""Weight of the rules that a SelfSubjectRulesReview lists: 50 000 texts. There is no limit upstream."""


async def token_review(auth: Auth, spec: Object, client: Waiting | None = None) -> Object:
    """Return a TokenReview's status for a client; raises 400 without a token, 429 if a webhook cannot be asked in time."""
    token = spec.get("token", "")
    if not token:
        raise bad_request("token is required for TokenReview in authentication")
    wanted = spec.get("audiences") or list(auth.service_accounts.audiences)
    try:
        account = auth.service_accounts.review(token, wanted)
        if account:
            return _authenticated(with_authenticated(account[0]), account[1])
        if auth.token_webhook is not None and set(wanted) != set(auth.service_accounts.audiences):
            # Only a webhook knows of other audiences than this server's.
            reviewed = await auth.token_webhook.review(token, wanted, client)
            if reviewed is not None:
                return _authenticated(with_authenticated(reviewed[0]), reviewed[1])
        user = await auth.authenticator.authenticate(Credentials(token=token, client=client))
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


def subject(spec: Object) -> UserInfo:
    """Return the user that the spec of a (Local)SubjectAccessReview names."""
    extra = {k.lower(): tuple(v) for k, v in (spec.get("extra") or {}).items()}
    return UserInfo(spec.get("user", ""), spec.get("uid", ""), tuple(spec.get("groups") or ()), extra)


async def access(auth: Auth, attributes: AuthzAttributes, client: Waiting | None = None) -> Object:
    """Return the status of an access review with these attributes; raises 429 if a webhook cannot be asked in time."""
    waiting = () if client is None else (client.who, client.until_lost)
    decision, reason = await decide(auth.authorizer, attributes, *waiting)
    status: Object = {"allowed": decision is Decision.ALLOW}
    if decision is Decision.DENY:
        status["denied"] = True
    if decision is Decision.ALLOW and not reason and auth.authorizer.has("RBAC"):
        reason = auth.rbac.why(attributes)
    if reason:
        status["reason"] = reason
    return status


async def self_subject_rules_review(auth: Auth, user: UserInfo, namespace: str) -> tuple[Object, int]:
    """Return a SelfSubjectRulesReview's status, what `kubectl auth can-i --list` shows, and its weight (event_loop/weight.py).

    The first rules alone are listed of those that weigh more than MOST_RULES_WEIGHT together.
    """
    if not namespace:
        raise bad_request("no namespace on request")
    about, paths, weight = list[Object](), list[Object](), 0
    problems = _unresolved(auth, user)
    time_slice = TimeSlice()
    for rule in _rules_of(auth, user, namespace):
        await time_slice.step()
        weight += _weight(rule, MOST_RULES_WEIGHT - weight)
        if weight > MOST_RULES_WEIGHT:
            problems.append("too many rules to list them all")
            break
        if rule.get("resources"):
            about.append({k: rule[k] for k in ("verbs", "apiGroups", "resources", "resourceNames") if rule.get(k)})
        if rule.get("nonResourceURLs"):
            paths.append({"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]})
    status: Object = {"resourceRules": about, "nonResourceRules": paths, "incomplete": bool(problems)}
    if problems:
        status["evaluationError"] = problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"
    return status, weight


def _rules_of(auth: Auth, user: UserInfo, namespace: str) -> Iterator[Object]:
    if SYSTEM_MASTERS in user.groups or auth.authorizer.has("AlwaysAllow"):
        yield from _EVERYTHING
    if auth.authorizer.has("RBAC"):
        yield from auth.rbac.rules_for(user, namespace)
    if auth.abac is not None and auth.authorizer.has("ABAC"):
        yield from auth.abac.rules_for(user, namespace)


def _weight(rule: Object, most: int) -> int:
    """Return the weight of a rule, or something more than `most`."""
    found = VALUE * (1 + count_values((rule,)))
    return found if found > most else found + sum(sum(map(len, texts or ())) for texts in rule.values())


def _unresolved(auth: Auth, user: UserInfo) -> list[str]:
    """Return why rules may be missing: permissions by a webhook cannot be listed, and those of a node depend on its pods."""
    found = []
    node = node_of(user)
    if node and auth.authorizer.has("Node"):
        found.append(f"node authorizer does not support user rule resolution: {node}")
    if auth.authorizer.has("Webhook"):
        found.append("webhook authorizer does not support user rule resolution")
    return found


_EVERYTHING = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
