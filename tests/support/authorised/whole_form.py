"""Every verb on every resource and on each of its parts, in the plain form. Random requests leave some out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from kube.json_object import Object
from tests.support.authorised.bodies import fresh
from tests.support.authorised.calls import JSON, Call
from tests.support.authorised.targets import COMPONENTS, TARGETS, Target
from tests.support.authorised.world import World
from tests.support.authorised.writing_forms import TAKING_ALONG

_MERGE = "application/merge-patch+json"
_AGENT = (("user-agent", "mallory"),)
_TOUCHED: Object = {"metadata": {"labels": {"touched": "yes"}}}


def each(world: World) -> list[Call]:
    """Return the requests, in the order of the table of resources."""
    return [call for target in TARGETS.values() for call in _of(world, target)]


def _of(world: World, target: Target) -> Iterator[Call]:
    namespace = "left" if target.namespaced else ""
    name = world.seeded(target, namespace)[0]
    path, collection = target.path(namespace, name), target.path(namespace)
    for read in (path, collection, target.path()):
        yield Call("GET", read, "", _AGENT, form="get")
    for watched in (collection, path):
        yield Call("GET", watched.replace(target.root, f"{target.root}/watch", 1), "", _AGENT, form="watch")
    yield Call("GET", collection, "watch=true", _AGENT, form="watch")
    if target is COMPONENTS:
        return
    now = world.object(target, namespace, name) or {}
    yield from _writes(path, now)
    made = fresh(Random(1), world, target, namespace, name if "." in name else "fresh")
    yield _sent("POST", collection, made, JSON)
    if target.plural not in TAKING_ALONG:
        yield Call("DELETE", collection, "", _AGENT, form="clear")
    yield Call("DELETE", path, "", _AGENT, form="delete")
    for part in target.subresources:
        place = f"{path}/{part}"
        yield Call("GET", place, "", _AGENT, form="get")
        yield Call("POST", place, "", _AGENT, form="act")
        meta = {"name": name, "namespace": namespace}
        scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": {"replicas": 3}}
        yield from _writes(place, scale if part == "scale" else now, {"spec": {"replicas": 4, "paused": True}})


def _writes(path: str, now: Object, more: Object | None = None) -> Iterator[Call]:
    meta = {k: v for k, v in now.get("metadata", {}).items() if k not in ("resourceVersion", "managedFields")}
    labelled = {"labels": meta.get("labels", {}) | {"touched": "yes"}}
    yield _sent("PUT", path, now | {"metadata": meta | labelled}, JSON)
    yield _sent("PATCH", path, _TOUCHED | (more or {}), _MERGE)


def _sent(method: str, path: str, obj: Object, media: str) -> Call:
    headers = (*_AGENT, ("content-type", media))
    return Call(method, path, "", headers, json.dumps(obj).encode(), "each")
