"""Error messages of denied requests.

pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the namespace "x"
"""

from __future__ import annotations

import json

from control.auth.user import AuthzAttributes
from kube.errors import MOST_SHOWN, StatusError, forbidden


def denied(attributes: AuthzAttributes, reason: str = "") -> StatusError:
    """Return the 403 for a request that no authorizer allowed."""
    if len(reason) > MOST_SHOWN:
        reason = f"{reason[:MOST_SHOWN]}..."
    message = describe(attributes) + (f": {reason}" if reason else "")
    if not attributes.is_resource:
        return StatusError(403, "Forbidden", f"forbidden: {message}")
    return forbidden(attributes.group, attributes.resource, attributes.name, message)


def describe(attributes: AuthzAttributes) -> str:
    """Say what the user cannot do, in upstream's words."""
    user = json.dumps(attributes.user.name, ensure_ascii=False)
    if not attributes.is_resource:
        return f"User {user} cannot {attributes.verb} path {json.dumps(attributes.path, ensure_ascii=False)}"
    resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
    where = f'in the namespace "{attributes.namespace}"' if attributes.namespace else "at the cluster scope"
    return f'User {user} cannot {attributes.verb} resource "{resource}" in API group "{attributes.group}" {where}'
