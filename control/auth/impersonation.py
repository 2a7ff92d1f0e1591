"""Acting as somebody else: Impersonate-User, -Group, -Uid and -Extra-* headers, each authorised by itself.

The real user needs the verb `impersonate` on users or serviceaccounts, groups, uids and userextras/<key>. What comes out is
the user the rest of the request is seen as; the headers are no part of the request afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from urllib.parse import unquote

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.service_account import groups_of, split_username
from control.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    Authorizer,
    AuthzAttributes,
    Decision,
    UserInfo,
)
from kube.errors import internal

_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


async def impersonate(user: UserInfo, headers: Iterable[tuple[bytes, bytes]], authorizer: Authorizer) -> UserInfo:
    """Return whom the request acts as: the user themselves where no header says otherwise.

    `headers` are the raw ASGI pairs (lower-case names). Raises 403 for what the user may not impersonate and 500, as
    upstream, for groups, uid or extra without a user.
    """
    name, uid, groups, extra = "", "", [], {}  # type: ignore[var-annotated]
    for raw_key, raw_value in headers:
        if not raw_key.startswith(b"impersonate-"):
            continue
        key, value = raw_key.decode("latin-1"), raw_value.decode("latin-1")
        if key == _USER:
            name = value
        elif key == _GROUP:
            groups.append(value)
        elif key == _UID:
            uid = value
        elif key.startswith(_EXTRA):
            extra.setdefault(unquote(key.removeprefix(_EXTRA)).lower(), []).append(value)
    if not (name or groups or uid or extra):
        return user
    if not name:
        raise internal("impersonation of groups, a uid or extra fields needs Impersonate-User")
    for attributes in _needed(user, name, uid, groups, extra):
        decision, reason = await decide(authorizer, attributes)
        if decision is not Decision.ALLOW:
            raise denial.denied(attributes, reason)
    account = split_username(name)
    if account and not groups:
        groups = list(groups_of(account[0]))
    return UserInfo(name, uid, _with_everybody(name, groups), {k: tuple(v) for k, v in extra.items()})


def _needed(
    user: UserInfo, name: str, uid: str, groups: list[str], extra: dict[str, list[str]]
) -> Iterable[AuthzAttributes]:
    account = split_username(name)
    if account:
        yield AuthzAttributes(user, "impersonate", "", "v1", "serviceaccounts", "", account[0], account[1])
    else:
        yield AuthzAttributes(user, "impersonate", "", "v1", "users", "", "", name)
    for group in groups:
        yield AuthzAttributes(user, "impersonate", "", "v1", "groups", "", "", group)
    for key, values in extra.items():
        for value in values:
            yield AuthzAttributes(user, "impersonate", _AUTHENTICATION, "v1", "userextras", key, "", value)
    if uid:
        yield AuthzAttributes(user, "impersonate", _AUTHENTICATION, "v1", "uids", "", "", uid)


def _with_everybody(name: str, groups: list[str]) -> tuple[str, ...]:
    group = UNAUTHENTICATED if name == ANONYMOUS else AUTHENTICATED
    if group in groups or (group == AUTHENTICATED and UNAUTHENTICATED in groups):
        return tuple(groups)
    return (*groups, group)
