"""Admission for objects that are created and not stored: bindings, evictions, token requests, reviews.

Plugins, policies and webhooks see a CREATE with the object that was sent, under its own kind, as upstream's create handler
shows it. What the server then writes to carry the request out is not shown again.
"""

from __future__ import annotations

from control.http.exchange import Request
from control.interfaces.admission import Attributes
from control.registry.context import Context
from control.server.verbs import Verbs
from kube.json_object import Object
from kube.resources import Resource

_SYSTEM = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink", "managedFields")
"""Parts of the metadata that a create never takes from a client (apiserver's WipeObjectMetaSystemFields)."""


def wiped(obj: Object) -> Object:
    """Return an object without the metadata that only the server sets."""
    meta = {key: value for key, value in (obj.get("metadata") or {}).items() if key not in _SYSTEM}
    return obj | {"metadata": meta}


async def admit(
    server: Verbs, request: Request, resource: Resource, name: str, obj: Object, context: Context
) -> Attributes:
    """Have admission change an object or refuse it; returns what `validate` is to be shown."""
    info = request.info
    attributes = context.attributes(
        resource, "CREATE", info.namespace, name, subresource=info.subresource, obj=obj, size=context.size
    )
    await server.registry.admission.admit(attributes)
    return attributes


async def validate(server: Verbs, attributes: Attributes) -> None:
    """Have admission refuse the object as it is going to be carried out."""
    await server.registry.admission.validate(attributes)
