"""The finite routes behind the pipeline: health checks here, the others in modules that are imported later.

Clients request nothing but health checks before the server is ready. So these are handled here, and the modules of the others
(discovery, metrics) are imported in a thread once the server listens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from control.event_loop import imports
from control.http.exchange import Answer, Handler, Request, Response
from control.server.health import Health
from kube import errors

HEALTH = ("healthz", "livez", "readyz")


class Mounted:
    """Handler of paths that are not resources; `make` imports and builds the handler of the others.

    `debug` answers below /debug, `pages` /statusz and /flagz; None if there is nothing.
    """

    def __init__(
        self,
        health: Health,
        make: Callable[[], Handler],
        debug: Callable[[Request], str | None],
        pages: Callable[[Request], Response | None],
    ) -> None:
        self.health = health
        self._make, self._debug, self._pages = make, debug, pages
        self._loading: asyncio.Future[Handler] | None = None

    async def load(self) -> Handler:
        """Return the handler of the other paths, importing its modules off the loop the first time."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(imports.run(self._make))
        return await asyncio.shield(self._loading)

    async def close(self) -> None:
        """End the loading, if it has begun and not ended."""
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.gather(self._loading, return_exceptions=True)

    async def __call__(self, request: Request) -> Answer:
        root = request.path.strip("/").partition("/")[0]
        if root in HEALTH:
            return self._health(request)
        page = self._pages(request)
        if page is not None:
            return page
        if root == "debug" and request.method in ("GET", "HEAD"):
            text = self._debug(request)
            if text is not None:
                return Response(200, text.encode(), b"text/plain; charset=utf-8")
        return await (await self.load())(request)

    def _health(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        found = self.health.answer(request.path, request.query if request.query_string else {})
        if found is None:
            raise errors.path_not_found()
        headers = [(b"x-content-type-options", b"nosniff")]
        return Response(found[0], found[1].encode(), b"text/plain; charset=utf-8", headers)
