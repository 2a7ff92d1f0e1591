"""Authorization of requests: once before the handler, and again if a request does more than its verb implies.

An update or apply of what is not there is a `create` (upstream's handlers/update.go, withAuthorization), and so is an upgrade
that runs something in a container (pkg/registry/core/pod/rest/authorize.go).
"""

from __future__ import annotations

import msgspec

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision, UserInfo
from control.http.exchange import Request
from control.interfaces.requestinfo import RequestInfo

_SELECTING = frozenset({"list", "watch", "deletecollection"})


def attributes(request: Request, info: RequestInfo, user: UserInfo, verb: str = "") -> AuthzAttributes:
    """Return a request as the authorizers see it, with another verb where one is given."""
    found = without_selectors(info, user, verb)
    # The old watch paths take selectors for many objects but not for one, so authorizers are shown none.
    if request.query_string and found.verb in _SELECTING and info.is_resource and not info.deprecated_watch:
        fields, labels = request.option("fieldSelector"), request.option("labelSelector")
        return msgspec.structs.replace(found, field_selector=fields, label_selector=labels)
    return found


def without_selectors(info: RequestInfo, user: UserInfo, verb: str = "") -> AuthzAttributes:
    """Return the attributes of a request whose query is not parsed: those of the audit log."""
    verb = verb or info.verb
    if not info.is_resource:
        return AuthzAttributes(user=user, verb=verb, path=info.path)
    return AuthzAttributes(
        user=user,
        verb=verb,
        group=info.group,
        version=info.version,
        resource=info.resource,
        subresource=info.subresource,
        namespace=info.namespace,
        name=info.name,
        path=info.path,
    )


async def require(authorizer: Authorizer, request: Request, verb: str) -> None:
    """Raise 403 if a request's user may not do another verb than its own to what the request names."""
    if request.info.verb == verb:
        return  # the pipeline has asked
    asked = attributes(request, request.info, request.user, verb)
    decision, reason = await decide(authorizer, asked)
    if decision is not Decision.ALLOW:
        raise denial.denied(asked, reason)
