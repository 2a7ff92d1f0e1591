"""Requests that read: get, list and watch in all their spellings, and what no handler serves."""

from __future__ import annotations

from random import Random

from kube.journal import DENIED
from kube.journal import PATH as JOURNAL
from tests.support.authorised.calls import (
    Call,
    headers_of,
    joined,
    name_of,
    name_selector,
    namespace_of,
    one,
    some,
    spelled,
)
from tests.support.authorised.objects import NAMESPACES
from tests.support.authorised.targets import COMPONENTS, METRICS, TARGETS, Target
from tests.support.authorised.world import World

READABLE = [name for name in TARGETS]
_POPULAR = ["secrets", "configmaps", "pods", "namespaces", "events", "events.events.k8s.io"] * 4


def readable(rng: Random) -> Target:
    return TARGETS[one(rng, READABLE + _POPULAR)]


def getting(rng: Random, world: World) -> Call:
    target = readable(rng)
    namespace = namespace_of(rng, target)
    path = target.path(namespace, name_of(rng, world, target, namespace))
    if some(rng, 6):
        path += "/" + one(rng, (*target.subresources, "status", "zq"))
    query = one(rng, ("", "", "", "resourceVersion=0", "watch=true", "fieldSelector=metadata.name=b.c", "name=b.c"))
    return Call(one(rng, ("GET", "GET", "GET", "HEAD")), spelled(rng, path), query, headers_of(rng), form="get")


def listing(rng: Random, world: World) -> Call:
    """A list or a watch, of one namespace or of all, with a name in none, one or two places."""
    target = readable(rng)
    namespace = namespace_of(rng, target) if rng.randrange(4) else ""
    found = [] if some(rng, 2) else [_named(rng, world, target, namespace)]
    watching = some(rng, 4)
    if watching:
        found.append("watch=" + one(rng, ("true", "1", "yes", "", "false", "0")))
    query = _options(rng, world, found)
    form = "watch" if watching else "list"
    method = one(rng, ("GET",) * 9 + ("HEAD",))
    return Call(method, spelled(rng, target.path(namespace)), query, headers_of(rng), form=form)


def watching(rng: Random, world: World) -> Call:
    """A watch on one of the old paths: of a collection or of one object, which a field selector may name otherwise."""
    target = readable(rng)
    namespace = namespace_of(rng, target) if rng.randrange(4) else ""
    prefix = one(rng, ("watch",) * 7 + ("proxy",))
    path = target.path(namespace).replace(target.root, f"{target.root}/{prefix}", 1)
    if some(rng, 2):
        path += "/" + name_of(rng, world, target, namespace or "left")
    found = [] if some(rng, 3) else [_named(rng, world, target, namespace)]
    return Call("GET", spelled(rng, path), _options(rng, world, found), headers_of(rng), form="watch")


def _named(rng: Random, world: World, target: Target, namespace: str) -> str:
    return "fieldSelector=" + name_selector(rng, name_of(rng, world, target, namespace or "right"), "b.c")


def _options(rng: Random, world: World, found: list[str]) -> str:
    """Return a query of what was found already and other options of lists and watches, in any order."""
    options = list(found)
    if some(rng, 10):
        options.append("fieldSelector=" + name_selector(rng, "b.c", "a"))
    if some(rng, 8):
        options.append("labelSelector=" + one(rng, ("app%3Dx", "app=x,name=a", "!gone", "app in (x,y)", "a==b==c")))
    if some(rng, 5):
        options.append("resourceVersion=" + one(rng, ("", "0", "1", "5", "999999", "x")))
    if some(rng, 10):
        options += ["sendInitialEvents=true", "resourceVersionMatch=NotOlderThan", "allowWatchBookmarks=true"]
    if some(rng, 10):
        options.append("limit=" + one(rng, ("1", "2", "-1", "x")))
    if some(rng, 8):
        options.append("continue=" + one(rng, (*world.tokens, "eyJ2IjoibWV0YSJ9", "zq")))
    if some(rng, 10):
        options.append(one(rng, ("watch=false", "watch=true", "namespace=right", "includeObject=Object", "pretty=1")))
    return joined(rng.sample(options, len(options)))


_ODD = (
    "/",
    "/api",
    "/apis",
    "/api/v1",
    "/apis/apps/v1",
    "/apis/apps",
    "/version",
    "/metrics",
    "/openapi/v2",
    "/openapi/v3",
    "/livez",
    "/readyz/ping",
    "/logs",
    "/debug/api_priority_and_fairness/dump_requests",
    "/.well-known/openid-configuration",
    "/api/v1/watch",
    "/api/v1/proxy/namespaces/left/pods/a",
    "/api/v1/namespaces/left/nothings/a",
    "/api/v2/namespaces/left/secrets/a",
    "/apis//v1/namespaces/left/secrets/a",
    "/apis/core/v1/namespaces/left/secrets/a",
    "/api/v1/nodes/n1/n2/status",
    "//api/v1/namespaces/left/secrets/a",
    "/API/v1/namespaces/left/secrets/a",
    "/api/v1/namespaces/left/secrets/a?fieldSelector=metadata.name=b.c",
    "/apis/metrics.k8s.io/v1beta1/nodes",
    "/apis/metrics.k8s.io/v1beta1/namespaces/left/pods/a",
)


def odd(rng: Random, world: World) -> Call:
    """A path that is for no resource, for one that nobody serves, or for another kind of server."""
    method = one(rng, ("GET", "GET", "GET", "POST", "OPTIONS", "PUT", "TRACE", "get"))
    return Call(method, spelled(rng, one(rng, _ODD)), "", headers_of(rng), form="odd")


def measuring(rng: Random, world: World) -> Call:
    """A request for the use of nodes and pods, which shows their names and labels."""
    plural = one(rng, ("pods", "nodes"))
    namespace = one(rng, (*NAMESPACES, *NAMESPACES, "")) if plural == "pods" else ""
    path = f"/apis/{METRICS}/v1beta1" + (f"/namespaces/{namespace}" if namespace else "") + f"/{plural}"
    if some(rng, 2):
        path += "/" + name_of(rng, world, TARGETS[plural], namespace)
    found = [_named(rng, world, TARGETS[plural], namespace)] if some(rng, 3) else []
    method = one(rng, ("GET", "GET", "GET", "HEAD", "DELETE"))
    return Call(method, spelled(rng, path), _options(rng, world, found), headers_of(rng), form="measure")


def recounting(rng: Random, world: World) -> Call:
    """A request for the journal's entries about an object, which only the query names."""
    target = readable(rng)
    namespace = namespace_of(rng, target)
    name = name_of(rng, world, target, namespace)
    if some(rng, 5):
        namespace, name = DENIED, f"{namespace}/{name}" if namespace else name
    found = [f"group={target.group}", f"version={target.version}", f"resource={target.plural}", f"name={name}"]
    found += [f"namespace={namespace}"] if namespace or some(rng, 2) else []
    if some(rng, 4):
        found.append(
            one(rng, ("name=b.c", "namespace=right", "namespace=", "resource=secrets", "group=", "version=v9"))
        )
    path = JOURNAL + one(rng, ("",) * 7 + ("/",))
    return Call(
        one(rng, ("GET",) * 9 + ("HEAD",)), path, joined(rng.sample(found, len(found))), headers_of(rng), form="journal"
    )


def components(rng: Random, world: World) -> Call:
    """A request for the states of components, which are not stored."""
    path = COMPONENTS.path("", *one(rng, ((), (), (name_of(rng, world, COMPONENTS, ""),))))
    found = [_named(rng, world, COMPONENTS, "")] if some(rng, 2) else []
    return Call(
        one(rng, ("GET", "GET", "HEAD")), spelled(rng, path), _options(rng, world, found), headers_of(rng), form="list"
    )
