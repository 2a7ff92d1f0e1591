"""Impersonation: Impersonate-User, -Group, -Uid and -Extra-* headers, and who may (KEP-5284, on in v1.36).

First the constrained ways are tried: the real user needs `impersonate-on:<way>:<verb>` on what the request is about, and
`impersonate:<way>` on whom it acts as, where <way> is associated-node (a pod's account acts as its own node), arbitrary-node,
serviceaccount or user-info (everybody else). Then the old one: the verb `impersonate` on users or serviceaccounts, groups,
uids and userextras/<key>, whatever the request does. What comes out is the user the rest of the request is seen as.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from urllib.parse import unquote

import msgspec
from msgspec.structs import replace

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.service_account_names import groups_of, split_username
from control.auth.user import (
    ANONYMOUS,
    AUTHENTICATED,
    SYSTEM_MASTERS,
    UNAUTHENTICATED,
    Authorizer,
    AuthzAttributes,
    Decision,
    UserInfo,
)
from kube import names
from kube.errors import StatusError, bad_request
from kube.node_names import NODE_PREFIX, NODES_GROUP

_USER, _GROUP, _UID, _EXTRA = "impersonate-user", "impersonate-group", "impersonate-uid", "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"
NODE_NAME = "authentication.kubernetes.io/node-name"
NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"
ALL_AT_ONCE = 4
"""Number of groups or extras from which on they are first authorized together, as "*"."""


class Impersonation(msgspec.Struct, frozen=True):
    """The impersonated user, and the constrained verb that allowed it ("": the verb `impersonate`)."""

    user: UserInfo
    constraint: str = ""


def wanted(headers: Iterable[tuple[bytes, bytes]]) -> UserInfo | None:
    """Return the user that the headers name; None without impersonation headers.

    `headers` are the raw ASGI pairs (lower-case names). Raises 400 for groups, a uid or extra without a user.
    """
    name, uid, groups, extra = "", "", [], {}  # type: ignore[var-annotated]
    for raw_key, raw_value in headers:
        if not raw_key.startswith(b"impersonate-"):
            continue
        key, value = raw_key.decode("latin-1"), raw_value.decode("latin-1")
        if key == _USER:
            name = name or value
        elif key == _GROUP:
            groups.append(value)
        elif key == _UID:
            uid = uid or value
        elif key.startswith(_EXTRA):
            extra.setdefault(unquote(key.removeprefix(_EXTRA)).lower(), []).append(value)
    if not (name or groups or uid or extra):
        return None
    if not name:
        raise bad_request(
            "impersonation of groups, a uid or extra fields is requested without impersonating a user name"
        )
    return UserInfo(name, uid, tuple(groups), {key: tuple(values) for key, values in extra.items()})


async def impersonate(asked: AuthzAttributes, whom: UserInfo, authorizer: Authorizer) -> Impersonation:
    """Return the impersonated user; `asked` is the request of the real user. Raises 403 with the first check's reason."""
    refusal: StatusError | None = None
    async for check in _ways(asked, whom, authorizer):
        if not isinstance(check, StatusError):
            return check
        refusal = refusal or check
    assert refusal is not None
    raise refusal


async def _ways(
    asked: AuthzAttributes, whom: UserInfo, authorizer: Authorizer
) -> AsyncIterator[Impersonation | StatusError]:
    for way, requestor, name in _constrained(asked.user, whom):
        verb = f"impersonate:{way}"
        on = replace(asked, user=requestor, verb=f"impersonate-on:{way}:{asked.verb}")
        problem = await _refused(authorizer, on)
        problem = problem or await _checked(authorizer, _whom(requestor, verb, whom, name), whom)
        yield problem or Impersonation(_completed(whom, nodes=True), verb)
    for attributes in (a for part in _legacy(asked.user, whom) for a in part):
        problem = await _refused(authorizer, attributes)
        if problem is not None:
            yield problem
            return
    yield Impersonation(_completed(whom, nodes=False))


def _constrained(user: UserInfo, whom: UserInfo) -> Iterator[tuple[str, UserInfo, str]]:
    """Yield the constrained impersonation modes for a user, with the user to authorize and the requested name."""
    alone = not (whom.uid or whom.groups or whom.extra)
    node, account = _node(whom.name), split_username(whom.name)
    if node and alone:
        if split_username(user.name) and user.extra.get(NODE_NAME) == (node,):
            # Which node it is was looked at here; authorizers are asked about all of them, so that answers can be kept.
            shown = replace(user, extra={NODE_KEYS: tuple(sorted(user.extra))})
            yield "associated-node", shown, "*"
        yield "arbitrary-node", user, node
    elif account and alone:
        yield "serviceaccount", user, account[1]
    elif not node and not account:
        yield "user-info", user, whom.name


def _node(name: str) -> str:
    found = name.removeprefix(NODE_PREFIX) if name.startswith(NODE_PREFIX) else ""
    return "" if names.dns1123_subdomain(found) else found


Part = tuple[AuthzAttributes, ...]


def _whom(user: UserInfo, verb: str, whom: UserInfo, name: str) -> list[Part]:
    """Return what must be allowed on whom, in parts."""
    act = partial(AuthzAttributes, user=user, verb=verb, group=_AUTHENTICATION, version="v1")
    account = split_username(whom.name)
    if _node(whom.name):
        first = act(resource="nodes", name=name)
    elif account:
        first = act(resource="serviceaccounts", namespace=account[0], name=name)
    else:
        first = act(resource="users", name=name)
    return [(first,), *_rest(user, verb, whom, _AUTHENTICATION)]


def _legacy(user: UserInfo, whom: UserInfo) -> list[Part]:
    act = partial(AuthzAttributes, user=user, verb="impersonate", version="v1")
    account = split_username(whom.name)
    if account:
        first = act(resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        first = act(resource="users", name=whom.name)
    return [(first,), *_rest(user, "impersonate", whom, "")]


def _rest(user: UserInfo, verb: str, whom: UserInfo, group: str) -> list[Part]:
    """Return what must be allowed on the uid, the groups and the extras."""
    act = partial(AuthzAttributes, user=user, verb=verb, version="v1")
    uid = (act(group=_AUTHENTICATION, resource="uids", name=whom.uid),) if whom.uid else ()
    groups = tuple(act(group=group, resource="groups", name=name) for name in whom.groups)
    extras = tuple(
        act(group=_AUTHENTICATION, resource="userextras", subresource=key, name=value)
        for key, values in whom.extra.items()
        for value in values
    )
    return [uid, groups, extras]


async def _checked(authorizer: Authorizer, parts: list[Part], whom: UserInfo) -> StatusError | None:
    """Ask about the parts of a constrained way; return the refusal."""
    for part in parts:
        if not part:
            continue
        problem = _never(part[0], whom)
        if problem is not None:
            return problem
        if len(part) >= ALL_AT_ONCE:
            together = replace(part[0], name="*", subresource="*" if part[0].resource == "userextras" else "")
            if await _refused(authorizer, together) is None:
                continue
        for attributes in part:
            problem = await _refused(authorizer, attributes)
            if problem is not None:
                return problem
    return None


def _never(attributes: AuthzAttributes, whom: UserInfo) -> StatusError | None:
    """Refuse users that constrained impersonation never allows."""
    why = ""
    if attributes.resource == "groups":
        if "" in whom.groups:
            why = "impersonating the empty string group is not allowed"
        elif SYSTEM_MASTERS in whom.groups:
            attributes = replace(attributes, name=SYSTEM_MASTERS)
            why = "impersonating the system:masters group is not allowed"
    elif attributes.resource == "userextras":
        for key, values in whom.extra.items():
            domain, slash, path = key.partition("/")
            if not slash or not path or names.dns1123_subdomain(domain):
                why = f'impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "{key}"'
            elif "" in values:
                why = "impersonating the empty string value in extra is not allowed"
    return denial.denied(attributes, why) if why else None


async def _refused(authorizer: Authorizer, attributes: AuthzAttributes) -> StatusError | None:
    decision, reason = await decide(authorizer, attributes)
    return None if decision is Decision.ALLOW else denial.denied(attributes, reason)


def _completed(whom: UserInfo, *, nodes: bool) -> UserInfo:
    """Add the groups that follow from a user's name."""
    groups, account = whom.groups, split_username(whom.name)
    if nodes and _node(whom.name):
        groups = (NODES_GROUP,)
    elif account and not groups:
        groups = tuple(groups_of(account[0]))
    everybody = UNAUTHENTICATED if whom.name == ANONYMOUS else AUTHENTICATED
    if everybody not in groups and not (everybody == AUTHENTICATED and UNAUTHENTICATED in groups):
        groups = (*groups, everybody)
    return replace(whom, groups=groups)
