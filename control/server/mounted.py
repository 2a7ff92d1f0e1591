"""The finite routes behind the pipeline: health checks here, the others in a FastAPI application that is loaded later.

Importing FastAPI takes as long as the rest of the start, and clients request nothing else before the server is ready. So
health checks are handled here, and the application is imported in a thread once the server listens; its responses are
collected and returned whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from control import imports
from control.http.exchange import USER, Answer, Request, Response
from control.server.health import Health
from kube import errors

Application = Any
HEALTH = ("healthz", "livez", "readyz")


class Mounted:
    """Handler of paths that are not resources; `make` imports and builds the application.

    `debug` answers below /debug, `pages` /statusz and /flagz; None if there is nothing.
    """

    def __init__(
        self,
        health: Health,
        make: Callable[[], Application],
        debug: Callable[[Request], str | None],
        pages: Callable[[Request], Response | None],
    ) -> None:
        self.health = health
        self._make, self._debug, self._pages = make, debug, pages
        self._loading: asyncio.Future[Application] | None = None

    async def load(self) -> Application:
        """Return the application, importing it off the loop the first time."""
        if self._loading is None:
            self._loading = asyncio.ensure_future(imports.run(self._make))
        return await asyncio.shield(self._loading)

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
        return await self._run(await self.load(), request)

    def _health(self, request: Request) -> Answer:
        if request.method not in ("GET", "HEAD"):
            raise errors.method_not_allowed()
        found = self.health.answer(request.path, request.query if request.query_string else {})
        if found is None:
            raise errors.path_not_found()
        headers = [(b"x-content-type-options", b"nosniff")]
        return Response(found[0], found[1].encode(), b"text/plain; charset=utf-8", headers)

    async def _run(self, app: Application, request: Request) -> Answer:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "https",
            "path": request.path,
            "raw_path": request.path.encode(),
            "query_string": request.query_string,
            "root_path": "",
            "headers": list(request.headers.items()),
            "client": None,
            "server": None,
            USER: request.user.name,
        }
        answer = Response(500)
        parts: list[bytes] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                for name, value in message.get("headers", ()):
                    if message["status"] == 304 and name in (b"content-type", b"content-length"):
                        continue
                    if name == b"content-type":
                        answer.content_type = value
                    elif name != b"content-length":
                        answer.headers.append((name, value))
            else:
                parts.append(message.get("body", b""))

        await app(scope, receive, send)
        answer.body = b"".join(parts)
        return answer
