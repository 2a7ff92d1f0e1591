"""Which module serves which subresource, and which the kinds that are only created.

A handler takes (server, request, resource) and returns an answer. Modules are imported when first asked for.
"""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from control.server.exchange import Answer, Request
from kube import errors
from kube.resources import Resource

if TYPE_CHECKING:
    from control.server.resources import ResourceServer

Handler = Callable[["ResourceServer", Request, Resource], Awaitable[Answer]]

# (resource target, subresource) -> (verb -> "module:function")
_HANDLERS: dict[tuple[str, str], dict[str, str]] = {}
_REVIEWS: dict[str, str] = {}


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
        if verbs is None or not info.name:
            raise errors.path_not_found()
        if info.verb not in verbs:
            raise errors.method_not_allowed()
        return await self._load(verbs[info.verb])(server, request, resource)

    async def review(self, server: ResourceServer, request: Request, resource: Resource) -> Answer:
        target = _REVIEWS.get(resource.target)
        if target is None:
            raise errors.path_not_found()
        return await self._load(target)(server, request, resource)
