"""Audit events of requests: started when the user is known, completed with the response.

The end of a stream or of an upgraded connection is recorded when its last chunk is sent or the connection is closed.

Lines with large bodies are encoded outside the event loop, and a request waits for its own line: so later requests of the
client are logged after it, and no more bodies are queued than there are requests.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from control.auth.audit import AuditContext, Auditor
from control.auth.user import AuthzAttributes
from control.event_loop import offload
from control.event_loop.weight import weight
from control.http.chunks import Chunks, Release, close
from control.http.exchange import Answer, Request, Response, Stream
from control.http.pieces import Body
from control.server import audit_bodies

_BODY = "audit body"


def begin(auditor: Auditor | None, request: Request, attributes: AuthzAttributes) -> None:
    """Begin a request's note where the policy wants one."""
    if auditor is None:
        return
    query = request.query_string.decode("latin-1")
    uri = f"{request.path}?{query}" if query else request.path
    client = request.extensions.get("scope", {}).get("client")
    sources = [client[0]] if client else []
    request.note = auditor.begin(attributes, request.audit_id, uri, sources, request.header(b"user-agent"))


def waits(request: Request) -> bool:
    """Return whether `settled` has something to wait for, which is rare: a coroutine costs more than the question."""
    note = request.note
    return note is not None and bool(note.pending)


async def settled(request: Request) -> None:
    """Wait until a request's events are where they have to be before it continues; raises StatusError."""
    note = request.note
    if note is not None:
        await note.settled()


def keep(request: Request, body: Body) -> None:
    """Keep an answer's own body as it is before line breaks are put into it and it is compressed, for what `end` shows."""
    note = request.note
    if note is not None and note.shows_response(200):
        request.extensions[_BODY] = body


def end(request: Request, answer: Answer) -> None:
    """Note the answer, and arrange for the end of what continues after it."""
    note = request.note
    if note is None:
        return
    own = request.extensions.pop(_BODY, None)
    if isinstance(answer, Response):
        if note.shows_request or note.shows_response(answer.status):
            _stage(note, request, "ResponseComplete", answer.status, answer, own)
        else:
            note.stage("ResponseComplete", answer.status)
    elif isinstance(answer, Stream):
        _stage(note, request, "ResponseStarted", answer.status)
        answer.chunks = _audited(answer.chunks, note, answer.status)
    else:
        note.request_object = _sent(note, request)
        splice = answer.splice

        async def spliced(connection: Any) -> Any:
            note.stage("ResponseStarted", 101)
            try:
                return await splice(connection)
            finally:
                note.stage("ResponseComplete", 101)
                await note.settled()

        answer.splice = spliced


def _stage(
    note: AuditContext, request: Request, name: str, code: int, answer: Response | None = None, own: Body | None = None
) -> None:
    """Write the first stage that shows bodies: at once where they are small."""
    if answer is not None and not note.shows_response(code):
        answer = None
    if code >= 400:
        own = None  # something went wrong after it was made

    def value() -> Any:
        note.request_object = _sent(note, request)
        bare = note.verdict.omit_managed_fields
        if answer is None:
            return None
        return audit_bodies.answered(answer) if own is None else audit_bodies.own(own, answer.content_type, bare=bare)

    size = request.weight if note.shows_request else 0
    if answer is not None:
        shown = answer.body if own is None else own
        size += weight(shown) if isinstance(shown, bytes) else len(shown)
        if own is None and audit_bodies.compressed(answer):
            size += offload.LARGE
    if size < offload.LARGE:
        note.stage(name, code, value())
        return

    def line() -> bytes:
        return note.line(name, code, value())

    async def write() -> None:
        user = getattr(request, "user", None)
        for wait in note.write(await offload.complete(user.name if user is not None else "", line)):
            await wait

    if note.wants(name):
        note.later(write())


def _sent(note: AuditContext, request: Request) -> Any:
    return audit_bodies.sent(request) if note.shows_request and request.sent else None


def _audited(chunks: AsyncIterator[bytes], note: AuditContext, status: int) -> Chunks:
    """Return chunks whose end is recorded, also if they are closed before the first."""

    async def release() -> None:
        try:
            note.stage("ResponseComplete", status)
            await note.settled()
        finally:
            await close(chunks)

    async def until_end(release: Release) -> AsyncIterator[bytes]:
        try:
            async for chunk in chunks:
                yield chunk
        finally:
            await release()

    return Chunks(until_end, release)
