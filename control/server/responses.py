"""Responses with objects and collections: in the form that was requested, large ones in pieces and compressed."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from control.event_loop import offload
from control.event_loop.helper_client import HelperFailed
from control.event_loop.pacing import TimeSlice
from control.event_loop.weight import weight
from control.http.exchange import JSON, Request, Response
from control.http.pieces import Body, Pieces
from control.registry import encoded
from control.registry.context import Written
from control.registry.strategy_context import Settings
from control.server import auditing
from control.server.forms import Form, Items
from control.storage.entry import Entry
from control.storage.folder_list import FolderList
from kube import errors

GZIP_FROM = 128 * 1024
_GZIP = 16
"""Added to the size of zlib's window: a gzip header."""
AT_ONCE = 1024
"""Objects of the longest list that is written at once, which takes a fifth of a millisecond."""
TOGETHER = 256
"""Objects of a list that are put into it without a look at the time."""


async def listed(
    request: Request, form: Form, entries: Sequence[Entry], metadata: dict[str, Any], settings: Settings
) -> Response:
    """Answer with a collection; a large one is written in pieces, between which others have their turns."""
    form.pretty = _pretty(request, form)
    if form.plain:
        return await _sent(request, form, await _as_stored(form, entries, metadata), 200)
    size = sum([len(entry.data) for entry in entries])
    body: Body
    if size < offload.LARGE and _light(entries):
        body = form.list(entries, metadata)
    else:
        items: Items = []
        for piece in _pieces(entries):
            if request.left():
                raise errors.timeout("the client has closed its connection")
            items += await _items(request.user.name, form, piece, size, settings)
        body = form.joined(items, metadata)
    return await _sent(request, form, body, 200)


async def _items(user: str, form: Form, entries: Sequence[Entry], size: int, settings: Settings) -> Items:
    """Return a piece of a collection of `size` bytes as the helper writes it, or as the thread does where it cannot."""
    if not (size < offload.HUGE or form.wanted.protobuf or form.strategy.resource.custom):
        name, objects = encoded.named(form.strategy.resource, settings), [e.data for e in entries]
        shown = asdict(form.wanted), form.include, form.pretty
        with contextlib.suppress(HelperFailed):
            items: Items = await offload.by_helper(user, "show_items", name, *shown, objects, reading=True)
            return items
    return await offload.read(user, form.items, entries)


async def shown(
    request: Request, form: Form, size: int, write: Callable[..., bytes], *args: Any, status: int = 200
) -> Response:
    """Return the answer that `write` makes of an object that weighs `size`; the plain form takes no time."""
    body = write(*args) if form.plain else await offload.run(request.user.name, size, write, *args)
    return await _sent(request, form, body, status)


async def _sent(request: Request, form: Form, body: Body, status: int) -> Response:
    """Return an answer with line breaks, and compressed, where its client wants that."""
    user = request.user.name
    auditing.keep(request, body)
    if isinstance(body, bytes) and not form.pretty and _pretty(request, form):
        body = await offload.run(user, len(body), msgspec.json.format, body, indent=2)
    response = Response(status, body, form.wanted.content_type)
    if len(body) >= GZIP_FROM and b"gzip" in request.headers.get(b"accept-encoding", b""):
        response.body = await _zipped(user, body, offload.read if request.method == "GET" else offload.apart)
        response.headers += [(b"content-encoding", b"gzip"), (b"vary", b"Accept-Encoding")]
    return response


async def written(request: Request, form: Form, outcome: Written, status: int) -> Response:
    """Answer with an object that was written."""
    if form.plain:
        return await _sent(request, form, outcome.data, status)
    return await shown(request, form, weight(outcome.data), form.object, outcome.data, status=status)


def _pretty(request: Request, form: Form) -> bool:
    return request.pretty and form.wanted.content_type == JSON


def _light(entries: Sequence[Entry]) -> bool:
    return sum([weight(entry.data) for entry in entries]) < offload.LARGE


def _pieces(entries: Sequence[Entry]) -> Iterator[Sequence[Entry]]:
    """Return the parts of a list that are written at one turn each."""
    begin = size = 0
    for index, entry in enumerate(entries):
        if size and size + len(entry.data) > offload.PIECE:
            yield entries[begin:index]
            begin, size = index, 0
        size += len(entry.data)
    yield entries[begin:]


async def _as_stored(form: Form, entries: Sequence[Entry], metadata: dict[str, Any]) -> Body:
    shared = entries if isinstance(entries, FolderList) else None
    if shared is not None and (cached := shared.items(form.typed)) is not None:
        return form.stored_list(cached, metadata)
    if len(entries) <= AT_ONCE:
        objects = [entry.data for entry in entries]
        if (size := sum(map(len, objects))) < offload.HUGE:
            joined = form.stored_items(objects, size)
            if shared is not None:
                shared.cache_items(form.typed, joined)
            return form.stored_list(joined, metadata)
    (pieces, items), time_slice = form.as_stored(metadata, empty=not entries), TimeSlice()
    for start in range(0, len(entries), TOGETHER):
        await time_slice.step()
        pieces.extend(items(entries[start : start + TOGETHER]))
    return pieces.whole() if len(pieces) < offload.HUGE else pieces


async def _zipped(user: str, body: Body, beside: Callable[..., Awaitable[bytes]]) -> bytes:
    compressor = zlib.compressobj(1, wbits=zlib.MAX_WBITS | _GZIP)
    parts = [await beside(user, compressor.compress, part) for part in _parts(body)]
    return b"".join((*parts, compressor.flush()))


def _parts(body: Body) -> Iterator[bytes | memoryview]:
    """Return what is compressed at one turn each."""
    if isinstance(body, Pieces):
        yield from body.parts(offload.HUGE)
        return
    view = memoryview(body)
    for start in range(0, len(body), offload.HUGE):
        yield view[start : start + offload.HUGE]
