"""The scale subresource of custom resources: replicas and selector at the places that the definition names."""

from __future__ import annotations

from functools import partial

from control.event_loop import offload
from control.http.exchange import Answer, Request
from control.registry import updating
from control.registry.context import Projection
from control.schemas import jsonpath
from control.server import patching
from control.server.subresources.pods import body_of
from control.server.subresources.scale import DECODER, SCALE, changed_scale, checked_replicas, shown
from control.server.verbs import Verbs
from kube import errors
from kube.json_object import Object
from kube.resources import Resource

_KEPT = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")


def _paths(server: Verbs, resource: Resource) -> Object:
    paths = server.registry.strategy(resource).scale
    assert paths is not None
    return paths


def scale_of(obj: Object, paths: Object) -> Object:
    """Return a custom resource's Scale; raises 500 if it has no replicas, 400 for replicas that are no integer."""
    replicas = _integer(obj, paths["specReplicasPath"])
    if replicas is None:
        raise errors.internal(f'the spec replicas field "{paths["specReplicasPath"]}" does not exist')
    status: Object = {"replicas": _integer(obj, paths["statusReplicasPath"]) or 0}
    selector = jsonpath.get(jsonpath.plain(paths.get("labelSelectorPath") or ""), obj)
    if isinstance(selector, str) and selector:
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {part: obj["metadata"][part] for part in _KEPT if part in obj["metadata"]},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


_GO_TYPES = {str: "string", bool: "bool", float: "float64", list: "[]interface {}", dict: "map[string]interface {}"}
_LONGEST = 100


def _integer(obj: Object, path: str) -> int | None:
    """Return an integer of a custom resource, None if it is absent; raises 400 for anything else (scaleFromCustomResource)."""
    found = jsonpath.get(jsonpath.plain(path), obj)
    if found is None or type(found) is int:
        return found
    shown = found[:_LONGEST] if isinstance(found, str) else _GO_TYPES.get(type(found), "value")
    text = f"{path} accessor error: {shown} is of the type {_GO_TYPES.get(type(found), 'unknown')}, expected int64"
    raise errors.bad_request(text)


async def get(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Show the Scale."""
    entry = await server.registry.get(resource, request.info.namespace, request.info.name)
    return await shown(server, request, entry.data, partial(scale_of, paths=_paths(server, resource)))


async def update(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Set replicas from a Scale; 409 where it carries an older resourceVersion."""
    context = server.context(request, "UpdateOptions")
    scale = await body_of(server, request, DECODER)
    name, paths = request.info.name, _paths(server, resource)
    given = (scale.get("metadata") or {}).get("name")
    if given != name:
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")

    projection = _projection(name, paths)

    async def change(obj: Object | None) -> Object:
        assert obj is not None
        return _scaled(obj, scale, name, paths)

    written = await updating.update(
        server.registry, context, resource, request.info.namespace, name, change, projection=projection
    )
    return await shown(server, request, written.data, partial(scale_of, paths=paths))


async def patch(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Patch the object as if it were its Scale."""
    context = server.context(request, "PatchOptions")
    body = await request.document(server.max_body)
    name, paths = request.info.name, _paths(server, resource)
    found = await patching.read(request, body, SCALE, DECODER, context, server.registry.clock.now(), "scale")

    projection = _projection(name, paths)

    async def change(obj: Object | None) -> Object:
        if obj is None:
            raise errors.not_found(resource.group, resource.plural, name)
        place = jsonpath.plain(paths["specReplicasPath"])
        before = await offload.run(context.user.name, context.size, scale_of, obj, paths)
        return _scaled(obj, await changed_scale(found, context, obj, before, place), name, paths)

    written = await updating.update(
        server.registry, context, resource, request.info.namespace, name, change, projection=projection
    )
    return await shown(server, request, written.data, partial(scale_of, paths=paths))


def _projection(name: str, paths: Object) -> Projection:
    """Show admission the Scale, and take the replicas from what it makes of it."""

    def write(obj: Object, scale: Object) -> None:
        _scaled(obj, scale, name, paths)

    return Projection("scale", partial(scale_of, paths=paths), write)


def _scaled(obj: Object, scale: Object, name: str, paths: Object) -> Object:
    replicas = checked_replicas(obj, scale, name)
    *above, last = jsonpath.plain(paths["specReplicasPath"])
    place = obj
    for part in above:
        place = place.setdefault(part, {})
        if not isinstance(place, dict):
            raise errors.bad_request(f"{paths['specReplicasPath']} leads through a value that is no object")
    place[last] = replicas
    return obj
