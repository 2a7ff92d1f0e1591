"""Routes of the page's server. All but the page's own files and the exchange of the link need the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
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
    cookie, loaded = COOKIE.format(origin.port), files.load()
    reading, watching = Reading(cluster.client, stop), Watching(cluster.client, stop)
    stories, pictures = Stories(cluster.client, cluster.namespace), Computing("pictures of Services")
    inner = Computing("metrics and decisions")

    async def page(request: Request) -> Response:
        content, media_type = loaded[files.INDEX]
        return Response(content, media_type=media_type)

    async def file(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in loaded:
            raise StatusError(404, "NotFound", "there is no such file")
        content, media_type = loaded[name]
        return Response(content, media_type=media_type)

    async def exchange(request: Request) -> Response:
        if not session.exchange(await _link(request)):
            why = "this link was used already" if session.used else "this is not the link that was printed"
            raise StatusError(403, "Forbidden", f"{why}: {AGAIN}")
        answer = JSONResponse({"token": session.token})
        answer.set_cookie(cookie, session.cookie, httponly=True, samesite="strict", path="/")
        answer.headers["clear-site-data"] = CLEARED
        return answer

    async def about(request: Request) -> ASGIApp:
        return JSONResponse({"server": cluster.server, "namespace": cluster.namespace, "parts": sources.PARTS})

    async def watch(request: Request) -> ASGIApp:
        return watching.answer(request)

    async def picture(request: Request) -> ASGIApp:
        return await pictures.answer(partial(traffic.picture, cluster.client, *names(request, "namespace", "name")))

    async def stopped(request: Request) -> ASGIApp:
        return await pictures.answer(partial(traffic.stopped, cluster.client, *names(request, "namespace")))

    async def numbers(request: Request) -> ASGIApp:
        return await inner.answer(partial(inside.numbers, cluster.client, *names(request, "node", optional="node")))

    async def decided(request: Request) -> ASGIApp:
        namespace = names(request, "namespace", optional="namespace")[0]
        return await inner.answer(partial(decisions.decided, cluster.client, namespace, decisions.query(request)))

    async def source(request: Request) -> ASGIApp:
        return PlainTextResponse(sources.text(request.query_params.get("part", "")))

    def route(path: str, handler: Handler) -> Route:
        return Route(path, _Authenticated(handler, session, cookie), methods=["GET"])

    routes = [
        Route("/", page),
        Route("/static/{name}", file),
        Route("/session", exchange, methods=["POST"]),
        route("/about", about),
        route("/watch", watch),
        Route("/exec", Terminals(cluster.client, session, cookie, stop)),
        route("/why", stories.answer),
        route("/traffic", picture),
        route("/stopped", stopped),
        route("/inside", numbers),
        route("/decisions", decided),
        route("/source", source),
        route("/api/{path:path}", reading.answer),
        route("/apis/{path:path}", reading.answer),
    ]
    return Guard(Starlette(routes=routes, exception_handlers={StatusError: failures.handle}), origin)


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
