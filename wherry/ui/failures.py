"""Errors as the JSON that the page shows: always an object with a message, as the API server's own."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse

from kube.errors import StatusError


def answer(error: StatusError) -> JSONResponse:
    """Return the answer for an error."""
    return JSONResponse({"message": error.message, "reason": error.reason}, error.code)


async def handle(request: Request, error: Exception) -> JSONResponse:
    """Answer a StatusError that a route raised."""
    assert isinstance(error, StatusError)
    return answer(error)
