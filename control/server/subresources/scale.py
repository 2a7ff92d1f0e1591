"""The scale subresource: a workload's replicas as autoscaling/v1 Scale, read, updated and patched without the rest of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from control.decoding.decode import Decoder
from control.event_loop import offload
from control.event_loop.weight import weight
from control.http.exchange import Answer, Request, Response
from control.http.negotiate import negotiate
from control.patch.apply.scaling import REPLICAS, to_parent, to_scale
from control.registry import updating
from control.registry.columns import AGE, NAME, Column
from control.registry.context import Context, Projection
from control.registry.strategy import Strategy
from control.registry.tables import age
from control.server import patching
from control.server.forms import Form
from control.server.subresources.pods import body_of
from control.server.verbs import Verbs
from kube import errors, selectors
from kube.api import autoscaling_v1
from kube.json_object import Object
from kube.resources import Resource

SCALE = Resource("autoscaling", "v1", "scales", "Scale", "autoscaling_v1")
DECODER = Decoder(autoscaling_v1.Scale, "autoscaling/v1", "Scale")


class ScaleStrategy(Strategy):
    """Table columns of a Scale."""

    columns = (
        NAME,
        Column("Desired", type="integer", description="Number of desired pods."),
        Column("Available", type="integer", description="Number of pods that there are."),
        AGE,
    )

    def row(self, obj: Object, now: datetime) -> list[Any]:
        meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
        return [
            meta["name"],
            spec.get("replicas", 0),
            status.get("replicas", 0),
            age(meta.get("creationTimestamp"), now),
        ]


_STRATEGY = ScaleStrategy(SCALE)


def scale_of(obj: Object) -> Object:
    """Return a workload's Scale; the selector is the text form that autoscalers list pods with."""
    meta, spec, status = obj["metadata"], obj.get("spec") or {}, obj.get("status") or {}
    selector = spec.get("selector")
    if selector is not None and not {"matchLabels", "matchExpressions"} & selector.keys():
        selector = {"matchLabels": selector}  # a ReplicationController's is a plain map
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {part: meta[part] for part in kept if part in meta},
        "spec": {"replicas": spec.get("replicas", 0)} if spec.get("replicas") else {},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": str(selectors.from_label_selector(selector)) if selector is not None else "",
        },
    }


async def get(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Show a workload's Scale."""
    entry = await server.registry.get(resource, request.info.namespace, request.info.name)
    return await _shown(server, request, entry.data)


async def update(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Set replicas from a Scale; 409 where it carries an older resourceVersion."""
    context = server.context(request, "UpdateOptions")
    scale = await body_of(server, request, DECODER)
    name = request.info.name
    given = (scale.get("metadata") or {}).get("name")
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")

    projection = _projection(name)

    async def change(obj: Object | None) -> Object:
        assert obj is not None
        return _scaled(obj, scale, name)

    written = await updating.update(
        server.registry, context, resource, request.info.namespace, name, change, projection=projection
    )
    return await _shown(server, request, written.data)


async def patch(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Patch a workload as if it were its Scale."""
    context = server.context(request, "PatchOptions")
    body = await request.document(server.max_body)
    name = request.info.name
    found = await patching.read(request, body, SCALE, DECODER, context, server.registry.clock.now(), "scale")

    projection = _projection(name)

    async def change(obj: Object | None) -> Object:
        if obj is None:
            raise errors.not_found(resource.group, resource.plural, name)
        before = await offload.run(context.user.name, context.size, scale_of, obj)
        scale = await changed_scale(found, context, obj, before, REPLICAS)
        return _scaled(obj, scale, name)

    written = await updating.update(
        server.registry, context, resource, request.info.namespace, name, change, projection=projection
    )
    return await _shown(server, request, written.data)


async def changed_scale(
    patch: patching.Patch, context: Context, obj: Object, scale: Object, path: Sequence[str]
) -> Object:
    """Return a patched Scale of an object. Who applies one comes to own the object's replicas, at `path`."""
    if context.operation != "Apply":
        return await patch.change(scale)
    meta = obj["metadata"]
    scale["metadata"]["managedFields"] = to_scale(meta.get("managedFields"), path)
    changed = await patch.change(scale)
    owned = (changed.get("metadata") or {}).get("managedFields")
    meta["managedFields"] = to_parent(meta.get("managedFields"), owned, path, obj["apiVersion"])
    return changed


def _projection(name: str) -> Projection:
    """Show admission the Scale, and take the replicas from what it makes of it."""

    def write(obj: Object, scale: Object) -> None:
        _scaled(obj, scale, name)

    return Projection("scale", scale_of, write)


def _scaled(obj: Object, scale: Object, name: str) -> Object:
    obj.setdefault("spec", {})["replicas"] = checked_replicas(obj, scale, name)
    return obj


def checked_replicas(obj: Object, scale: Object, name: str) -> int:
    """Return the replicas that a Scale sets; raises 409 and 422. Takes over the Scale's resourceVersion."""
    meta = scale.get("metadata") or {}
    replicas = (scale.get("spec") or {}).get("replicas", 0)
    if replicas < 0:
        problem = errors.invalid_value("spec.replicas", replicas, "must be greater than or equal to 0")
        raise errors.invalid("autoscaling", "Scale", name, [problem])
    if meta.get("uid") and meta["uid"] != obj["metadata"]["uid"]:
        why = f"Precondition failed: UID in precondition: {meta['uid']}, UID in object meta: {obj['metadata']['uid']}"
        raise errors.conflict("", "scales", name, why)
    if meta.get("resourceVersion"):
        obj["metadata"]["resourceVersion"] = meta["resourceVersion"]
    return int(replicas)


async def _shown(server: Verbs, request: Request, data: bytes) -> Answer:
    return await shown(server, request, data, scale_of)


async def shown(server: Verbs, request: Request, data: bytes, scale_of: Callable[[Object], Object]) -> Answer:
    """Show the Scale of an object in the form that was requested."""

    def read() -> Object:
        return scale_of(msgspec.json.decode(data))

    scale = await offload.run(request.user.name, weight(data), read)
    wanted = negotiate(request.header(b"accept"))
    form = Form(wanted, _STRATEGY, request.option("includeObject"), server.registry.clock)
    data = msgspec.json.encode(scale)
    body = await offload.run(request.user.name, 0 if form.plain else weight(data), form.object, data)
    return Response(200, body, form.wanted.content_type)
