"""Errors as the JSON that the page shows: always an object with a message, as the API server's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from kube.errors import StatusError


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


async def handle(request: Request, error: Exception) -> JSONResponse:
    """Answer a StatusError that a route raised."""
    assert isinstance(error, StatusError)
    return answer(error)
