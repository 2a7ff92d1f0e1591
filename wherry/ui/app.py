"""Routes of the page's server. All but the page's own files and the exchange of the link need the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from kube.client import Client
from kube.errors import StatusError
from wherry.ui import decisions, failures, files, inside, sources, traffic
from wherry.ui.computing import Computing, names
from wherry.ui.guard import Guard
from wherry.ui.origin import Origin
from wherry.ui.protocol import identify
from wherry.ui.reading import Reading
from wherry.ui.session import COOKIE, HEADER, Session
from wherry.ui.stories import Stories
from wherry.ui.terminal import Terminals
from wherry.ui.watching import Watching

MOST_OF_A_BODY, BODY_SECONDS = 1024, 2.0
CLEARED = '"cache", "storage"'
"""Data of the origin that browsers delete when the session begins; a new origin should have none."""
AGAIN = "run `wherry ui` again for a new link"

Handler = Callable[[Request], Awaitable[ASGIApp]]


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that the page shows, and the namespace of the kubeconfig's context."""

    client: Client
    server: str
    namespace: str


def build(cluster: Cluster, session: Session, origin: Origin, stop: asyncio.Event) -> ASGIApp:
    """Return the application that serves the page at an origin; its watches and logs end when `stop` is set."""
    cookie = COOKIE.format(origin.port)
    entrance, reads = _Entrance(session, cookie), _Reads(cluster, stop)
    terminals = Terminals(cluster.client, session, cookie, stop)
    routes = [
        Route("/", entrance.page),
        Route("/static/{name}", entrance.file),
        Route("/session", entrance.exchange, methods=["POST"]),
        Route("/exec", terminals, methods=["GET"]),
        *(
            Route(path, _Authenticated(handler, session, cookie), methods=["GET"])
            for path, handler in reads.handlers().items()
        ),
    ]
    # Starlette's own application answers unforeseen errors with another text, and has the server print their tracebacks.
    answered = ExceptionMiddleware(Router(routes), handlers={StatusError: failures.handle})
    return Guard(failures.Contained(answered), origin)


class _Entrance:
    """Requests without the session: the page's files, and the exchange of the link."""

    def __init__(self, session: Session, cookie: str) -> None:
        self._session, self._cookie, self._files = session, cookie, files.load()

    async def page(self, request: Request) -> Response:
        content, media_type = self._files[files.INDEX]
        return Response(content, media_type=media_type)

    async def file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            raise StatusError(404, "NotFound", "there is no such file")
        content, media_type = self._files[name]
        return Response(content, media_type=media_type)

    async def exchange(self, request: Request) -> Response:
        session = self._session
        if not session.exchange(await _link(request)):
            why = "this link was used already" if session.used else "this is not the link that was printed"
            raise StatusError(403, "Forbidden", f"{why}: {AGAIN}")
        answer = JSONResponse({"token": session.token})
        answer.set_cookie(self._cookie, session.cookie, httponly=True, samesite="strict", path="/")
        answer.headers["clear-site-data"] = CLEARED
        return answer


class _Reads:
    """Reads of the session, a method or an object a path."""

    def __init__(self, cluster: Cluster, stop: asyncio.Event) -> None:
        self._cluster, self._client = cluster, cluster.client
        self._reading, self._watching = Reading(cluster.client, stop), Watching(cluster.client, stop)
        self._stories = Stories(cluster.client, cluster.namespace)
        self._pictures, self._metrics = Computing("pictures of Services"), Computing("metrics and decisions")

    def handlers(self) -> dict[str, Handler]:
        return {
            "/about": self._about,
            "/watch": self._watch,
            "/why": self._stories.answer,
            "/traffic": self._traffic,
            "/stopped": self._stopped,
            "/inside": self._inside,
            "/decisions": self._decisions,
            "/source": self._source,
            "/api/{path:path}": self._reading.answer,
            "/apis/{path:path}": self._reading.answer,
        }

    async def _about(self, request: Request) -> ASGIApp:
        server, namespace = self._cluster.server, self._cluster.namespace
        return JSONResponse({"server": server, "namespace": namespace, "parts": sources.PARTS})

    async def _watch(self, request: Request) -> ASGIApp:
        return self._watching.answer(request)

    async def _traffic(self, request: Request) -> ASGIApp:
        return await self._pictures.answer(partial(traffic.picture, self._client, *names(request, "namespace", "name")))

    async def _stopped(self, request: Request) -> ASGIApp:
        return await self._pictures.answer(partial(traffic.stopped, self._client, *names(request, "namespace")))

    async def _inside(self, request: Request) -> ASGIApp:
        node = names(request, "node", optional="node")
        return await self._metrics.answer(partial(inside.numbers, self._client, *node))

    async def _decisions(self, request: Request) -> ASGIApp:
        namespace, query = names(request, "namespace", optional="namespace")[0], decisions.query(request)
        return await self._metrics.answer(partial(decisions.entries, self._client, namespace, query))

    async def _source(self, request: Request) -> ASGIApp:
        return PlainTextResponse(sources.text(request.query_params.get("part", "")))


class _Authenticated:
    """Answers requests of the session, and refuses all others."""

    def __init__(self, handler: Handler, session: Session, cookie: str) -> None:
        self._handler, self._session, self._cookie = handler, session, cookie

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if not self._session.valid(request.cookies.get(self._cookie, ""), request.headers.get(HEADER, "")):
            raise failures.NoSession(f"this browser has no session: {AGAIN}")
        identify(scope)
        answer = await self._handler(request)
        await answer(scope, receive, send)


async def _link(request: Request) -> str:
    """Return the link's secret in a body {"link": ...}. Raise StatusError."""
    body = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MOST_OF_A_BODY:
                    raise StatusError(413, "RequestEntityTooLarge", f"the body has more than {MOST_OF_A_BODY} bytes")
        link = json.loads(body)["link"]
    except TimeoutError as error:
        raise StatusError(408, "Timeout", f"the body did not come within {BODY_SECONDS:g} s") from error
    except (ClientDisconnect, KeyError, TypeError, ValueError, RecursionError) as error:
        raise StatusError(400, "BadRequest", 'the body is not {"link": "..."}') from error
    if not isinstance(link, str):
        raise StatusError(400, "BadRequest", "the link is a text")
    return link
