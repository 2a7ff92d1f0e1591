"""Requests that write objects: POST, PUT, the four patches, DELETE of one and of many."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import yaml

from kube.json_object import Object
from tests.support.authorised.bodies import changes_of, fresh, status_of, twisted
from tests.support.authorised.calls import (
    JSON,
    Call,
    encoded,
    headers_of,
    joined,
    name_of,
    name_selector,
    namespace_of,
    one,
    some,
    spelled,
)
from tests.support.authorised.targets import TARGETS, Target
from tests.support.authorised.world import World

_NOT_WRITTEN = {"nodes", "endpoints", "namespaces", "componentstatuses"}
WRITABLE = [name for name in TARGETS if name not in _NOT_WRITTEN]
TAKING_ALONG = ("namespaces", "customresourcedefinitions")
"""Resources whose deletion by collection takes the objects of others along."""
_POPULAR = [
    "secrets",
    "configmaps",
    "pods",
    "leases.coordination.k8s.io",
    "clusterroles.rbac.authorization.k8s.io",
    "roles.rbac.authorization.k8s.io",
    "rolebindings.rbac.authorization.k8s.io",
    "events.crew.example",
] * 3


def writable(rng: Random) -> Target:
    return TARGETS[one(rng, WRITABLE + _POPULAR)]


_OPTIONS = ("dryRun=All", "dryRun=All", "dryRun=None", "fieldManager=me", "fieldValidation=Strict", "pretty=true")


def options(rng: Random, *more: str) -> str:
    found = list(more)
    if some(rng, 5):
        found.append(one(rng, _OPTIONS))
    if some(rng, 12):
        found.append(one(rng, ("dryRun=All", "fieldManager=other", "name=b.c", "namespace=right", "force=true")))
    return joined(found)


def creating(rng: Random, world: World) -> Call:
    target = writable(rng)
    namespace = namespace_of(rng, target)
    name = one(rng, ("fresh", "fresh.two", "a"))
    obj = twisted(rng, world, target, namespace, fresh(rng, world, target, namespace, name))
    body, kind = encoded(rng, obj, target)
    path = target.path(namespace)
    if some(rng, 8):
        path += f"/{name}"
    return Call("POST", spelled(rng, path), options(rng), headers_of(rng, ("content-type", kind)), body, "create")


def replacing(rng: Random, world: World) -> Call:
    target = writable(rng)
    namespace = namespace_of(rng, target)
    name = name_of(rng, world, target, namespace)
    obj = world.object(target, namespace, name)
    obj = fresh(rng, world, target, namespace, name) if obj is None else obj
    obj["metadata"].pop("resourceVersion" if some(rng, 2) else "managedFields", None)
    obj = twisted(rng, world, target, namespace, obj)
    body, kind = encoded(rng, obj, target)
    path = target.path(namespace, name)
    if some(rng, 5) and "status" in target.subresources:
        path += "/status"
        obj["metadata"].setdefault("labels", {})["touched"] = "yes"
    return Call("PUT", spelled(rng, path), options(rng), headers_of(rng, ("content-type", kind)), body, "replace")


def patching(rng: Random, world: World) -> Call:
    """One of the three patches that change what there is, of an object or of one of its parts."""
    target = writable(rng)
    namespace = namespace_of(rng, target)
    name = name_of(rng, world, target, namespace)
    path, changes = target.path(namespace, name), changes_of(rng, world, target)
    if some(rng, 4) and "status" in target.subresources:
        path += "/status"
        changes = {"status": status_of(target), "metadata": {"labels": {"touched": "yes"}}, "spec": {"paused": True}}
    kind = one(rng, ("json-patch", "merge-patch", "strategic-merge-patch"))
    patch: Any = changes
    if kind == "json-patch":
        patch = [
            {"op": "add", "path": f"/{part}/{key}" if isinstance(value, dict) else f"/{part}", "value": inner}
            for part, value in changes.items()
            for key, inner in (value.items() if isinstance(value, dict) else [("", value)])
        ]
    headers = headers_of(rng, ("content-type", f"application/{kind}+json"))
    return Call("PATCH", spelled(rng, path), options(rng), headers, json.dumps(patch).encode(), "patch")


def applying(rng: Random, world: World) -> Call:
    """A server-side apply, often of an object that is not there yet."""
    target = writable(rng)
    namespace = namespace_of(rng, target)
    name = one(rng, ("fresh", "fresh", name_of(rng, world, target, namespace)))
    obj = twisted(rng, world, target, namespace, fresh(rng, world, target, namespace, name))
    obj |= {"apiVersion": target.api_version, "kind": target.kind}
    path = target.path(namespace, name) + ("/status" if some(rng, 10) else "")
    manager = "" if some(rng, 10) else "fieldManager=me"
    headers = headers_of(rng, ("content-type", "application/apply-patch+yaml"))
    text = yaml.safe_dump(obj) if some(rng, 2) else json.dumps(obj)
    query = options(rng, manager, one(rng, ("force=true", "force=true", "")))
    return Call("PATCH", spelled(rng, path), query, headers, text.encode(), "apply")


def deleting(rng: Random, world: World) -> Call:
    target = TARGETS[one(rng, [*WRITABLE, *_POPULAR, "namespaces", "nodes"])]
    namespace = namespace_of(rng, target)
    name = name_of(rng, world, target, namespace)
    path, found = target.path(namespace, name), world.object(target, namespace, name)
    body: Object = {}
    match one(rng, range(8)):
        case 0:
            uid = (found or {}).get("metadata", {}).get("uid", "zq") if some(rng, 2) else "zq"
            body = {"preconditions": {"uid": uid}}
        case 1:
            body = {"propagationPolicy": one(rng, ("Foreground", "Orphan", "Background"))}
        case 2:
            body = {"dryRun": ["All"], "gracePeriodSeconds": 0}
        case 3:
            body = {"metadata": {"name": "b.c", "namespace": "right"}, "name": "b.c"}
        case 4:
            body = {"orphanDependents": True, "kind": "DeleteOptions", "apiVersion": "v1"}
    query = one(rng, ("", "", "", "dryRun=All", "gracePeriodSeconds=0", "propagationPolicy=Foreground", "name=b.c"))
    content = json.dumps(body).encode() if body else b""
    headers = headers_of(rng, ("content-type", JSON))
    return Call("DELETE", spelled(rng, path), query, headers, content, "delete")


def clearing(rng: Random, world: World) -> Call:
    """A DELETE of a collection, with and without selectors."""
    target = writable(rng)
    if target.plural in TAKING_ALONG:
        target = TARGETS["secrets"]
    namespace = namespace_of(rng, target) if rng.randrange(6) else ""
    found = []
    if some(rng, 2):
        found.append("fieldSelector=" + name_selector(rng, name_of(rng, world, target, namespace or "left"), "a"))
    if some(rng, 3):
        found.append("labelSelector=" + one(rng, ("app=x", "name=a", "name%21%3Da")))
    if some(rng, 4):
        found.append(one(rng, ("dryRun=All", "limit=1", "watch=true", "gracePeriodSeconds=0", "resourceVersion=0")))
    headers = headers_of(rng, ("content-type", JSON))
    return Call("DELETE", spelled(rng, target.path(namespace)), joined(found), headers, b"", "deletecollection")
