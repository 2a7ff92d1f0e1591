"""Requests as the audit log sees them: a note is begun when the user is known and ended with the answer.

A stream's or an upgraded connection's end comes later than its answer; it is noted when its last chunk is sent or its
splice is over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from control.auth.audit import Auditor, Note
from control.auth.user import AuthzAttributes, UserInfo
from control.server import audit_bodies
from control.server.exchange import Answer, Request, Response, Stream
from control.server.requestinfo import RequestInfo

_NOTE = "audit"


def begin(auditor: Auditor | None, request: Request, info: RequestInfo, user: UserInfo) -> None:
    """Begin a request's note where the policy wants one."""
    if auditor is None:
        return
    attributes = AuthzAttributes(
        user,
        info.verb,
        info.group,
        info.version,
        info.resource if info.is_resource else "",
        info.subresource,
        info.namespace,
        info.name,
        info.path,
    )
    query = request.query_string.decode("latin-1")
    uri = f"{request.path}?{query}" if query else request.path
    client = request.extensions.get("scope", {}).get("client")
    sources = [client[0]] if client else []
    request.extensions[_NOTE] = auditor.begin(attributes, request.audit_id, uri, sources, request.header(b"user-agent"))


def note_of(request: Request) -> Note | None:
    found: Note | None = request.extensions.get(_NOTE)
    return found


def waits(request: Request) -> bool:
    """Say whether `settled` has something to wait for, which is rare: a coroutine costs more than the question."""
    note = note_of(request)
    return note is not None and bool(note.pending)


async def settled(request: Request) -> None:
    """Wait until a request's events are where they have to be before it goes on; raises StatusError."""
    note = note_of(request)
    if note is not None:
        await note.settled()


def end(request: Request, answer: Answer) -> None:
    """Note the answer, and arrange for the end of what goes on after it."""
    note = note_of(request)
    if note is None:
        return
    if note.shows_request and request.sent:
        note.request_object = audit_bodies.sent(request)
    if isinstance(answer, Response):
        value = audit_bodies.answered(answer) if note.shows_response(answer.status) else None
        note.stage("ResponseComplete", answer.status, value)
    elif isinstance(answer, Stream):
        note.stage("ResponseStarted", answer.status)
        answer.chunks = _until_end(answer.chunks, note, answer.status)
    else:
        splice = answer.splice

        async def spliced(connection: Any) -> Any:
            note.stage("ResponseStarted", 101)
            try:
                return await splice(connection)
            finally:
                note.stage("ResponseComplete", 101)
                await note.settled()

        answer.splice = spliced


async def _until_end(chunks: AsyncIterator[bytes], note: Note, status: int) -> AsyncIterator[bytes]:
    try:
        async for chunk in chunks:
            yield chunk
    finally:
        note.stage("ResponseComplete", status)
        await note.settled()
        close = getattr(chunks, "aclose", None)
        if close is not None:
            await close()
