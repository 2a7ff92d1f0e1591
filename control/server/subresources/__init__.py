"""Which module serves which subresource, and which the kinds that are only created.

A handler takes (server, request, resource) and returns an answer. Modules are imported when first asked for.
"""

from __future__ import annotations

import importlib

from control.custom.resource import CustomResource
from control.server.exchange import Answer, Request
from control.server.resources import Handler, ResourceServer
from kube import errors
from kube.resources import Resource

_PART = {"get": "parts:get", "update": "parts:update", "patch": "parts:patch"}
_SCALE = {"get": "scale:get", "update": "scale:update", "patch": "scale:patch"}
_CUSTOM_SCALE = {"get": "custom_scale:get", "update": "custom_scale:update", "patch": "custom_scale:patch"}
_STREAM = {"create": "kubelet:connect", "get": "kubelet:connect"}
_PROXY = {verb: "backends:node" for verb in ("get", "create", "update", "patch", "delete")}

# (resource target, subresource) -> (verb -> "module:function")
_HANDLERS: dict[tuple[str, str], dict[str, str]] = {
    ("pods", "binding"): {"create": "pods:bind"},
    ("pods", "eviction"): {"create": "pods:evict"},
    ("pods", "ephemeralcontainers"): _PART,
    ("pods", "resize"): _PART,
    ("pods", "log"): {"get": "kubelet:log"},
    ("pods", "exec"): _STREAM,
    ("pods", "attach"): _STREAM,
    ("pods", "portforward"): _STREAM,
    ("nodes", "proxy"): _PROXY,
    ("pods", "proxy"): {verb: "backends:pod" for verb in _PROXY},
    ("services", "proxy"): {verb: "backends:service" for verb in _PROXY},
    ("replicationcontrollers", "scale"): _SCALE,
    ("deployments.apps", "scale"): _SCALE,
    ("replicasets.apps", "scale"): _SCALE,
    ("statefulsets.apps", "scale"): _SCALE,
    ("serviceaccounts", "token"): {"create": "reviews:service_account_token"},
    ("namespaces", "finalize"): {"update": "parts:update"},
    ("certificatesigningrequests.certificates.k8s.io", "approval"): _PART,
}
_REVIEWS: dict[str, str] = {
    "bindings": "reviews:binding",
    "selfsubjectreviews.authentication.k8s.io": "reviews:self_subject",
    "tokenreviews.authentication.k8s.io": "reviews:token",
    "subjectaccessreviews.authorization.k8s.io": "reviews:subject_access",
    "localsubjectaccessreviews.authorization.k8s.io": "reviews:subject_access",
    "selfsubjectaccessreviews.authorization.k8s.io": "reviews:self_access",
    "selfsubjectrulesreviews.authorization.k8s.io": "reviews:self_rules",
}


class Subresources:
    """Finds handlers; one a server, so that tests may replace some."""

    def __init__(self) -> None:
        self._found: dict[str, Handler] = {}

    def _load(self, target: str) -> Handler:
        found = self._found.get(target)
        if found is None:
            module, _, name = target.partition(":")
            found = getattr(importlib.import_module(f"control.server.subresources.{module}"), name)
            self._found[target] = found
        return found

    async def __call__(self, server: ResourceServer, request: Request, resource: Resource) -> Answer:
        info = request.info
        verbs = _HANDLERS.get((resource.target, info.subresource))
        if isinstance(resource, CustomResource) and info.subresource in resource.subresources:
            verbs = _CUSTOM_SCALE
        if verbs is None or not info.name:
            raise errors.path_not_found()
        # A proxy passes every method on; OPTIONS has no verb of its own.
        verb = "get" if not info.verb and request.method == "OPTIONS" and info.subresource == "proxy" else info.verb
        if verb not in verbs:
            raise errors.method_not_allowed()
        return await self._load(verbs[verb])(server, request, resource)

    async def review(self, server: ResourceServer, request: Request, resource: Resource) -> Answer:
        """Answer a kind that can only be created."""
        target = _REVIEWS.get(resource.target)
        if target is None:
            raise errors.path_not_found()
        return await self._load(target)(server, request, resource)
