"""Requests for parts of objects: subresources, connections through proxies, reviews, and what a node says."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from random import Random

from kube.json_object import Object
from tests.support.authorised.calls import (
    JSON,
    UPGRADES,
    Call,
    credentials,
    encoded,
    headers_of,
    joined,
    name_of,
    one,
    some,
    spelled,
)
from tests.support.authorised.objects import NAMESPACES, NODES, resources
from tests.support.authorised.reading_forms import getting, listing, watching
from tests.support.authorised.targets import TARGETS
from tests.support.authorised.world import EXTENSION, World
from tests.support.authorised.writing_forms import options

PODS = TARGETS["pods"]
NODE_USER = "system:node:n1"
_SCALED = tuple(name for name, target in TARGETS.items() if "scale" in target.subresources)


def acting(rng: Random, world: World) -> Call:
    """A POST to a subresource, or to the old collection of bindings: binding, eviction, token."""
    namespace = one(rng, NAMESPACES)
    name = name_of(rng, world, PODS, namespace)
    meta: Object = {"name": one(rng, (name, name, name, "a", "zqpodsleft")), "namespace": namespace}
    if some(rng, 8):
        meta["namespace"] = one(rng, NAMESPACES)
    if some(rng, 8):
        meta["uid"] = "u-9"
    meta["labels"] = {"touched": "yes"} if some(rng, 3) else {}
    what = one(rng, ("binding", "bindings", "eviction", "eviction", "token"))
    path, kind = PODS.path(namespace, name, what), ("core_v1", "Binding")
    obj: Object = {"apiVersion": "v1", "kind": "Binding", "metadata": meta}
    match what:
        case "binding" | "bindings":
            obj["target"] = {"kind": "Node", "name": one(rng, tuple(NODES))}
            if what == "bindings":
                path = f"/api/v1/namespaces/{namespace}/bindings" + one(rng, ("", "", "", "/other"))
        case "eviction":
            kind, obj = ("policy_v1", "Eviction"), obj | {"apiVersion": "policy/v1", "kind": "Eviction"}
            obj["deleteOptions"] = one(rng, ({}, {"dryRun": ["All"]}, {"gracePeriodSeconds": 0}))
        case "token":
            target = TARGETS["serviceaccounts"]
            name = name_of(rng, world, target, namespace)
            path, kind = target.path(namespace, name, "token"), ("authentication_v1", "TokenRequest")
            obj = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {}, "spec": {}}
            if some(rng, 3):
                pod = world.object(PODS, namespace, "a") or {"metadata": {}}
                bound = {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": pod["metadata"].get("uid", "")}
                obj["spec"] = {"boundObjectRef": bound}
    body, media = encoded(rng, obj, None, kind)
    return Call("POST", spelled(rng, path), options(rng), headers_of(rng, ("content-type", media)), body, "act")


def changing_parts(rng: Random, world: World) -> Call:
    """A PUT or a patch of a part: scale, approval, ephemeral containers, resources, finalizers."""
    namespace = one(rng, NAMESPACES)
    what = one(rng, ("scale", "scale", "approval", "ephemeralcontainers", "resize", "finalize", "status", "claim"))
    method, media = one(rng, (("PUT", JSON), ("PATCH", "application/merge-patch+json")))
    change: Object = {"metadata": {"labels": {"touched": "yes"}}}
    match what:
        case "scale":
            target = TARGETS[one(rng, _SCALED)]
            name = name_of(rng, world, target, namespace)
            meta = {"name": one(rng, (name, name, name, "b.c")), "namespace": one(rng, (namespace,) * 4 + NAMESPACES)}
            whole = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": meta, "spec": {"replicas": 3}}
            change |= {"spec": {"replicas": 4, "paused": True}}
        case "approval":
            target = TARGETS["certificatesigningrequests.certificates.k8s.io"]
            namespace, name = "", name_of(rng, world, target, "")
            condition = {"type": one(rng, ("Approved", "Denied")), "status": "True", "reason": "r", "message": "m"}
            change |= {"status": {"conditions": [condition]}}
            whole = _laid_over(world.object(target, "", name) or {"metadata": {"name": name}}, change)
        case "claim":
            target, what = TARGETS["resourceclaims.resource.k8s.io"], "status"
            name = name_of(rng, world, target, namespace)
            reserved = [{"resource": "pods", "name": "a", "uid": "u-1"}]
            change |= {"status": {"allocation": {"devices": {}}, "reservedFor": reserved}}
            whole = _laid_over(world.object(target, namespace, name) or {"metadata": {"name": name}}, change)
        case "finalize":
            target, namespace, name = TARGETS["namespaces"], "", namespace
            change |= {"spec": {"finalizers": []}}
            method, media = "PUT", JSON
            whole = _laid_over(world.object(target, "", name) or {}, change)
        case _:
            target, name = PODS, name_of(rng, world, PODS, namespace)
            change |= _pod_change(rng, what)
            whole = _laid_over(world.object(target, namespace, name) or {"metadata": {"name": name}}, change)
            if method == "PATCH" and some(rng, 2):
                media = "application/strategic-merge-patch+json"
    if method == "PUT" and some(rng, 8):
        whole["metadata"]["name"] = "zqpodsleft"
    body = json.dumps(whole if method == "PUT" else change).encode()
    path = target.path(namespace, name, what)
    return Call(method, spelled(rng, path), options(rng), headers_of(rng, ("content-type", media)), body, "part")


def _pod_change(rng: Random, what: str) -> Object:
    secret = one(rng, ("a", "b.c"))
    env = [{"name": "S", "valueFrom": {"secretKeyRef": {"name": secret, "key": "k"}}}]
    match what:
        case "ephemeralcontainers":
            return {"spec": {"ephemeralContainers": [{"name": "e", "image": "busybox", "env": env}]}}
        case "resize":
            return {"spec": {"containers": [{"name": "c", "image": "busybox", "resources": resources("64Mi")}]}}
        case _:
            return {"status": {"message": "touched"}, "spec": {"activeDeadlineSeconds": 5}}


def _laid_over(whole: Object, change: Object) -> Object:
    found = copy.deepcopy(whole)
    for key, value in change.items():
        found[key] = _laid_over(found.get(key) or {}, value) if isinstance(value, dict) else value
    found.get("metadata", {}).pop("resourceVersion", None)
    return found


def connecting(rng: Random, world: World) -> Call:
    """exec, attach, port-forward, logs, and the proxies of pods, nodes and Services; upgrades by GET and by POST."""
    namespace, more = one(rng, NAMESPACES), []
    what = one(rng, ("exec", "attach", "portforward", "log", "pod", "service", "service", "node", "node", "node"))
    query = ""
    match what:
        case "exec" | "attach" | "portforward" | "log":
            path = PODS.path(namespace, name_of(rng, world, PODS, namespace), what)
            query = {"exec": "command=id&stdout=true", "attach": "stdout=1", "portforward": "ports=80"}.get(what, "")
        case "pod":
            name = one(rng, ("a", "a:80", "http:a:80", "b.c", "absent", "a:x"))
            path = PODS.path(namespace, name, "proxy", *one(rng, ((), ("x",), ("x", "..", "y"))))
        case "service":
            name = one(rng, ("a", "a:80", "a:http", "http:a:80", "outside", "outside:80", "outside:x", "b", "a:x"))
            path = TARGETS["services"].path(namespace, name, "proxy", *one(rng, ((), ("x",))))
        case _:
            name = one(rng, ("n1", "n1:10250", "https:n1:10250", "n2:9100", "absent"))
            inner = one(rng, _AGENT).format(namespace=namespace)
            path = TARGETS["nodes"].path("", name, "proxy", *inner.split("/"))
    method = one(rng, ("GET", "GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
    if what not in ("pod", "service", "node"):
        method = one(rng, ("GET", "POST"))
    if some(rng, 2):
        more = [("connection", "Upgrade"), ("upgrade", one(rng, UPGRADES))]
    if some(rng, 3):
        more += credentials(rng)
    if some(rng, 6):
        query = joined([query, one(rng, ("path=/etc", "name=b.c", "namespace=right", "dryRun=All", "container=c"))])
    return Call(method, spelled(rng, path), query, headers_of(rng, *more), b"", "connect")


_AGENT = (
    "pods",
    "exec/{namespace}/a/c",
    "attach/{namespace}/a/c",
    "run/{namespace}/a/c",
    "portForward/{namespace}/a",
    "EXEC/{namespace}/a/c",
    "containerLogs/{namespace}/a/c",
    "metrics",
    "configz",
    "logs/x",
)


def misusing(rng: Random, world: World) -> Call:
    """Any method on any part of any kind, also of those that there are not, with any object as its body."""
    target = one(rng, tuple(TARGETS.values()))
    namespace = one(rng, NAMESPACES) if target.namespaced else ""
    name = name_of(rng, world, target, namespace)
    part = one(
        rng, (*target.subresources, "status", "scale", "binding", "eviction", "token", "finalize", "proxy/status")
    )
    method = one(rng, ("GET", "POST", "PUT", "PATCH", "DELETE", "DELETE", "HEAD"))
    other = one(rng, tuple(TARGETS.values()))
    body = world.object(one(rng, (target, other)), namespace, one(rng, (name, "a"))) or {}
    if method == "DELETE":
        body = one(rng, ({}, {"propagationPolicy": "Foreground"}, body))
    media = one(rng, (JSON, "application/merge-patch+json", "application/apply-patch+yaml"))
    path, query = target.path(namespace, name, *part.split("/")), options(rng, "fieldManager=me")
    content = json.dumps(body).encode() if body and method not in ("GET", "HEAD") else b""
    return Call(method, spelled(rng, path), query, headers_of(rng, ("content-type", media)), content, "misuse")


def extending(rng: Random, world: World) -> Call:
    """A request that another server answers, with headers that tell it who asks."""
    tail = one(rng, ("things", "namespaces/left/things/a", "namespaces/right/things/a/status", "things/a/../b", ""))
    method = one(rng, ("GET", "POST", "DELETE"))
    path = f"/apis/{EXTENSION}/v1/{tail}".rstrip("/")
    more = credentials(rng)
    if some(rng, 4):
        more += [("connection", "Upgrade"), ("upgrade", one(rng, UPGRADES))]
    return Call(method, spelled(rng, path), one(rng, ("", "watch=true")), headers_of(rng, *more), b"", "extension")


def requesting(rng: Random, world: World) -> Call:
    """A review: what may be done is asked, and nothing is done."""
    kind = one(
        rng, ("SubjectAccessReview", "SelfSubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectRulesReview")
    )
    attributes = {"verb": "get", "resource": "secrets", "namespace": one(rng, NAMESPACES), "name": "a"}
    spec: Object = {"resourceAttributes": attributes}
    if some(rng, 5):
        spec = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}}
    if kind in ("SubjectAccessReview", "LocalSubjectAccessReview"):
        spec["user"] = one(rng, ("other", "mallory"))
    if kind == "SelfSubjectRulesReview":
        spec = {"namespace": one(rng, NAMESPACES)}
    place = f"/namespaces/{one(rng, NAMESPACES)}" if kind.startswith("Local") else ""
    path = f"/apis/authorization.k8s.io/v1{place}/{kind.lower()}s"
    obj = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "metadata": {}, "spec": spec}
    body, media = encoded(rng, obj, None, ("authorization_v1", kind))
    return Call("POST", spelled(rng, path), options(rng), headers_of(rng, ("content-type", media)), body, "review")


def by_node(rng: Random, world: World) -> Call:
    """Requests of node n1: reads like any user's, or a status update of one of its pods."""
    if some(rng, 3):
        call = one(rng, (getting, listing, watching))(rng, world)
        plain = tuple(pair for pair in call.headers if not pair[0].startswith("impersonate-"))
        return replace(call, headers=plain, form="node", user=NODE_USER)
    return _status_by_node(rng, world)


def _status_by_node(rng: Random, world: World) -> Call:
    """Write a pod's status, with claims and annotations that the pod does not have."""
    namespace, name = one(rng, NAMESPACES), one(rng, ("a", "a", "mirror"))
    status: Object = {"message": "touched"}
    meta: Object = {}
    for _ in range(2):
        match one(rng, range(6)):
            case 0:
                mapped = [{"containerName": "c", "requestName": "r", "resourceName": "example.com/x"}]
                claim = {"resourceClaimName": one(rng, ("a", "b.c")), "requestMappings": mapped}
                status["extendedResourceClaimStatus"] = claim
            case 1:
                status["resourceClaimStatuses"] = [{"name": "c", "resourceClaimName": "b.c"}]
            case 2:
                meta["annotations"] = {"kubernetes.io/config.mirror": one(rng, ("changed", None))}
            case 3:
                meta["labels"] = {"touched": "yes"}
            case 4:
                status["podIP"] = "10.9.0.9"
    method, media = one(rng, (("PUT", JSON), ("PATCH", "application/strategic-merge-patch+json")))
    change = {"metadata": meta, "status": status}
    whole = _laid_over(world.object(PODS, namespace, name) or {}, change)
    whole["metadata"]["annotations"] = {k: v for k, v in whole["metadata"]["annotations"].items() if v is not None}
    body = json.dumps(whole if method == "PUT" else change).encode()
    headers = (("user-agent", "kubelet"), ("content-type", media))
    return Call(method, PODS.path(namespace, name, "status"), "", headers, body, "node", NODE_USER)
