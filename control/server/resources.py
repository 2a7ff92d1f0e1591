"""The verbs on resources: which handler a path and a method have, or which error.

What verbs do is in `reading`, `writing` and `deleting`. Subresources have modules of their own, named in
`control.server.subresources`, and so have kinds that can only be created (reviews).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from control.custom.definitions import Definitions
from control.custom.resource import CustomResource
from control.registry import metadata
from control.registry.registry import Registry
from control.server.deleting import Deleting
from control.server.exchange import Answer, Request
from control.server.listing import Listing
from control.server.metrics import CUSTOM
from control.server.requestinfo import RequestInfo
from control.server.writing import Writing
from kube import errors
from kube.resources import CREATE_ONLY, Resource, by_path

_MEASURED = "metrics.k8s.io"
"""A group that is not stored but measured."""
Handler = Callable[["ResourceServer", Request, Resource], Awaitable[Answer]]


class ResourceServer(Writing, Deleting):
    """Serves /api/** and /apis/**. `subresources` and `reviews` are asked for what they are called."""

    def __init__(
        self, registry: Registry, listing: Listing, max_body: int, subresources: Handler, reviews: Handler
    ) -> None:
        super().__init__(registry, listing, max_body)
        self._subresources, self._reviews = subresources, reviews
        self.custom: Definitions | None = None
        """What is served besides the built-in resources."""

    async def __call__(self, request: Request) -> Answer:
        info = request.info
        if info.group == _MEASURED:
            from control.resource_metrics import serve

            return await serve.answer(self, request)
        resource: Resource | None = by_path(info.group, info.version, info.resource)
        if resource is None and self.custom is not None:
            resource = await self.custom.serve(info.group, info.version, info.resource, info.verb)
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
            known = "list" in resource.verbs and not isinstance(resource, CustomResource)
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
            return await self._subresources(self, request, resource)
        if info.subresource == "status" and "status" not in resource.subresources:
            raise errors.path_not_found()
        return await self._dispatch(request, resource, info)

    async def _dispatch(self, request: Request, resource: Resource, info: RequestInfo) -> Answer:
        verb = info.verb
        warning = self.registry.strategy(resource).api_warning
        if warning:
            request.warnings.append(warning)
        if verb not in resource.verbs or (info.subresource and verb not in ("get", "update", "patch")):
            raise errors.method_not_allowed()
        if verb in ("update", "patch") and not info.name:
            raise errors.method_not_allowed()
        if verb == "get":
            return await self.get(request, resource)
        if verb == "list":
            return await self.list(request, resource)
        if verb == "watch":
            return await self.watch(request, resource)
        if verb == "create":
            if resource.verbs == CREATE_ONLY:
                return await self._reviews(self, request, resource)
            if info.name:
                raise errors.method_not_allowed()
            return await self.create(request, resource)
        if verb == "update":
            return await self.update(request, resource, info.subresource)
        if verb == "patch":
            return await self.patch(request, resource, info.subresource)
        if verb == "delete":
            return await self.delete(request, resource)
        return await self.delete_collection(request, resource)


def _is_namespace(resource: Resource, info: RequestInfo) -> bool:
    """Say whether a request is for the very Namespace that it was authorised in.

    /namespaces/a is authorised in a, but so is /namespaces/a/namespaces/b, which is no path that there is.
    """
    one = info.deprecated_watch or info.verb not in ("list", "watch")
    return resource.target == "namespaces" and info.name == info.namespace and one
