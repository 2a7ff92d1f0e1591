"""Routes requests for resources: finds the handler of a path and a method, or the error.

The verbs are implemented in `reading`, `writing` and `deleting`. Subresources, kinds that can only be created (reviews) and
groups that are not stored have their own handlers, which are passed as tables (`control.server.subresources`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from control.custom.definitions import Definitions
from control.http.exchange import Answer, Request
from control.interfaces.requestinfo import RequestInfo
from control.registry import metadata
from control.registry.served import ServedResource
from control.server.metrics import CUSTOM, DEPRECATED
from control.server.verbs import Verbs
from kube import errors
from kube.resources import CREATE_ONLY, Resource

Handler = Callable[[Request, Resource], Awaitable[Answer]]


class Handlers(msgspec.Struct, frozen=True):
    """Handlers of subresources, reviews, and groups that are not stored."""

    subresources: Mapping[tuple[str, str], Mapping[str, Handler]] = msgspec.field(default_factory=dict)
    """By resource target and subresource, then by verb."""
    custom_scale: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    """The subresource scale of custom resources, by verb."""
    reviews: Mapping[str, Handler] = msgspec.field(default_factory=dict)
    """Kinds that can only be created, by resource target."""
    groups: Mapping[str, Callable[[Request], Awaitable[Answer]]] = msgspec.field(default_factory=dict)
    """API groups that are not stored."""


class ResourceServer:
    """Serves /api/** and /apis/**. `custom` are the resources that are served besides the built-in ones."""

    def __init__(self, verbs: Verbs, handlers: Handlers, custom: Definitions) -> None:
        self._verbs, self._handlers, self._custom = verbs, handlers, custom
        self._registry = verbs.registry

    async def __call__(self, request: Request) -> Answer:
        info = request.info
        if info.group in self._handlers.groups:
            return await self._handlers.groups[info.group](request)
        resource: ServedResource | None = self._registry.built_in(info.group, info.version, info.resource)
        if resource is None:
            resource = await self._custom.serve(info.group, info.version, info.resource, info.verb)
            if resource is not None:
                request.extensions[CUSTOM] = True
        # A list's name is not in its path: it comes from `fieldSelector=metadata.name=x`, which spans namespaces.
        named = bool(info.name) and (info.verb not in ("list", "watch", "deletecollection") or info.deprecated_watch)
        if resource is None or (resource.namespaced and named and not info.namespace):
            raise errors.path_not_found()
        if info.rest and info.subresource != "proxy":
            raise errors.path_not_found()
        if named and resource.verbs == CREATE_ONLY:
            raise errors.path_not_found()  # nothing of these kinds is stored, so there are no paths of single objects
        if not resource.namespaced and info.namespace and not _is_namespace(resource, info):
            raise errors.path_not_found()
        if resource.namespaced and not info.namespace and info.verb in ("create", "deletecollection"):
            # Upstream has no such routes: only lists and watches span namespaces.
            known = "list" in resource.verbs and not resource.custom
            raise errors.method_not_allowed() if known else errors.path_not_found()
        if info.deprecated_watch:
            if info.subresource:
                raise errors.path_not_found()
            if request.method != "GET":
                raise errors.method_not_allowed()
        if info.name:
            metadata.check_url_name(info.name)
        if info.namespace:
            metadata.check_url_namespace(info.namespace)
        if info.subresource and info.subresource != "status":
            return await self._subresource(request, resource, info)
        if info.subresource == "status" and "status" not in resource.subresources:
            raise errors.path_not_found()
        return await self._dispatch(request, resource, info)

    def _dispatch(self, request: Request, resource: Resource, info: RequestInfo) -> Awaitable[Answer]:
        """Return the work of the request's verb: no coroutine of its own, which each request would pay for."""
        verb = info.verb
        warning = self._registry.strategy(resource).api_warning
        if warning:
            request.warnings.append(warning)
            if CUSTOM not in request.extensions:
                DEPRECATED.set(info.group, info.version, info.resource, info.subresource, "", value=1)
        if verb not in resource.verbs or (info.subresource and verb not in ("get", "update", "patch")):
            raise errors.method_not_allowed()
        if verb in ("update", "patch") and not info.name:
            raise errors.method_not_allowed()
        if verb == "get":
            return self._verbs.get(request, resource)
        if verb == "list":
            return self._verbs.list(request, resource)
        if verb == "watch":
            return self._verbs.watch(request, resource)
        if verb == "create":
            if resource.verbs == CREATE_ONLY:
                review = self._handlers.reviews.get(resource.target)
                if review is None:
                    raise errors.path_not_found()
                return review(request, resource)
            if info.name:
                raise errors.method_not_allowed()
            return self._verbs.create(request, resource)
        if verb == "update":
            return self._verbs.update(request, resource, info.subresource)
        if verb == "patch":
            return self._verbs.patch(request, resource, info.subresource)
        if verb == "delete":
            return self._verbs.delete(request, resource)
        return self._verbs.delete_collection(request, resource)

    async def _subresource(self, request: Request, resource: Resource, info: RequestInfo) -> Answer:
        handlers = self._handlers.subresources.get((resource.target, info.subresource))
        if resource.custom and info.subresource in resource.subresources:
            handlers = self._handlers.custom_scale
        if handlers is None or not info.name:
            raise errors.path_not_found()
        # A proxy passes every method on; OPTIONS has no verb of its own.
        verb = "get" if not info.verb and request.method == "OPTIONS" and info.subresource == "proxy" else info.verb
        if verb not in handlers:
            raise errors.method_not_allowed()
        return await handlers[verb](request, resource)


def _is_namespace(resource: Resource, info: RequestInfo) -> bool:
    """Return whether a request is for the Namespace object in which it was authorized.

    /namespaces/a is authorized in a, but so is /namespaces/a/namespaces/b, which is not a valid path.
    """
    one = info.deprecated_watch or info.verb not in ("list", "watch")
    return resource.target == "namespaces" and info.name == info.namespace and one
