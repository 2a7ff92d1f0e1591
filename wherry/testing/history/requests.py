"""The request that a write to the store belongs to."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from control.http.exchange import Answer, Handler, Request


@dataclass(frozen=True, slots=True)
class Author:
    """User and User-Agent of a request, and its verb."""

    user: str
    verb: str
    agent: str


SERVER = Author("", "", "")
"""Of writes without a request: the API server's own work, and expiry."""
_AUTHOR: ContextVar[Author] = ContextVar("author", default=SERVER)


def author() -> Author:
    """Return the author of what the present task writes."""
    return _AUTHOR.get()


def with_authors(handler: Handler) -> Handler:
    """Return a handler of requests that makes the author of each known to what it calls."""

    async def handle(request: Request) -> Answer:
        agent = request.headers.get(b"user-agent", b"").decode("latin-1")
        token = _AUTHOR.set(Author(request.user.name, request.info.verb, agent))
        try:
            return await handler(request)
        finally:
            _AUTHOR.reset(token)

    return handle
