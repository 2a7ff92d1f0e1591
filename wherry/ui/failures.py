"""Errors as the JSON that the page shows: always an object with a message, as the API server's own."""

from __future__ import annotations

import logging

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kube.errors import StatusError

log = logging.getLogger(__name__)


class NoSession(StatusError):
    """The browser has no session; the only 401 that it gets."""

    def __init__(self, message: str) -> None:
        super().__init__(401, "Unauthorized", message)


def of_server(error: StatusError) -> StatusError:
    """Return an error of the API server as the browser gets it: its 401 is about the kubeconfig, not about the session."""
    if error.code != 401 or isinstance(error, NoSession):
        return error
    return StatusError(
        502, "BadGateway", f"the API server does not accept the kubeconfig's credentials: {error.message}"
    )


def answer(error: StatusError) -> JSONResponse:
    """Return the answer for an error."""
    shown = of_server(error)
    return JSONResponse({"message": shown.message, "reason": shown.reason}, shown.code)


class Contained:
    """An ASGI application around another one, whose unforeseen errors are answered, and printed as one line.

    The command's terminal is the user's: a traceback for each request that a server of others can make fail would fill it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            log.error("a request of the page failed: %s", type(error).__name__)
            if not begun:
                await answer(StatusError(500, "InternalError", "the request failed in wherry ui"))(scope, receive, send)


async def handle(request: Request, error: Exception) -> JSONResponse:
    """Answer a StatusError that a route raised."""
    assert isinstance(error, StatusError)
    return answer(error)
