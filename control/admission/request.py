"""The AdmissionRequest for webhooks, which is also the variable `request` of policies' expressions."""

from __future__ import annotations

from functools import partial

from control.admission import object_work
from control.admission.versions import of_subresource, shown_as
from control.auth.user import user_info
from control.interfaces.admission import Attributes
from kube.json_object import Object
from kube.resources import Resource


async def describe(shown: Resource, attributes: Attributes) -> tuple[Object, Object | None, Object | None]:
    """Return (an AdmissionRequest without uid and objects, the object, the old object) as a version shows them."""
    asked, on_path = attributes.requested or attributes.resource, attributes.resource
    if attributes.operation == "CONNECT":
        kind = request_kind = {"group": "", "version": "v1", "kind": (attributes.obj or {}).get("kind", "")}
        new, old = attributes.obj, None
    else:
        kind, request_kind = _kind(shown, attributes), _kind(asked, attributes)
        run = partial(object_work.run, attributes)
        new = await shown_as(await object_work.decoded(attributes), on_path, shown, run)
        old = await shown_as(attributes.old, on_path, shown, run)
    request: Object = {
        "kind": kind,
        "resource": _resource(shown),
        "requestKind": request_kind,
        "requestResource": _resource(asked),
        "operation": attributes.operation,
        "userInfo": user_info(attributes.user),
        "dryRun": attributes.dry_run,
        "options": dict(attributes.options) or None,
    }
    if attributes.subresource:
        request["subResource"] = request["requestSubResource"] = attributes.subresource
    if attributes.name:
        request["name"] = attributes.name
    if attributes.namespace:
        request["namespace"] = attributes.namespace
    return request, new, old


def _kind(resource: Resource, attributes: Attributes) -> Object:
    """Return the kind of the object, which differs for some subresources (Eviction, Scale)."""
    obj = attributes.obj
    if obj is not None and of_subresource(obj, attributes.resource):
        group, _, version = str(obj["apiVersion"]).rpartition("/")
        return {"group": group, "version": version, "kind": obj["kind"]}
    return {"group": resource.group, "version": resource.version, "kind": resource.kind}


def _resource(resource: Resource) -> Object:
    return {"group": resource.group, "version": resource.version, "resource": resource.plural}
