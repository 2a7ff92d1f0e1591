"""/logs/: the files below the machine's log directory, and with `?query=` the logs of its services (KEP-2258).

Without a query it is a plain file server that lists directories as Go's does, since tools parse that. Unlike upstream's it
never leaves the directory: a link is followed only where its target is inside, and the target is opened without following
another, so that whoever may write there (a pod with a hostPath) cannot have the agent read other files of the machine. A query
is answered only where `enableSystemLogQuery` is set.
"""

from __future__ import annotations

import asyncio
import html
import mimetypes
import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from email.utils import formatdate, parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse

from agent.server.log_files import open_beneath
from agent.server.log_query import LogQuery, QueryError
from agent.server.open_file import OpenFile
from agent.server.protocol import allow_slow_reading
from agent.symlinks import resolve
from kube.serialize import readable

_CHUNK = 256 << 10
_SNIFFED = 512


@dataclass(frozen=True, slots=True)
class _Found:
    """An open file, or a folder's entries."""

    file: OpenFile | None = None
    size: int = 0
    modified: float = 0.0
    entries: tuple[str, ...] = ()


class SystemLogs:
    """Answers GET /logs/{path}; `queries`: also with a query for services' logs."""

    def __init__(self, folder: Path, *, queries: bool) -> None:
        self._folder, self._queries = folder, queries

    async def read(self, request: Request) -> Response:
        """Send a file, list a folder, or answer a query."""
        allow_slow_reading(request.scope)
        path = request.path_params.get("path", "")
        if self._queries and request.url.query:
            return await self._query(request)
        if path.endswith("/index.html") or path == "index.html":
            return RedirectResponse("./", 301)
        try:
            found = await asyncio.to_thread(look_up, self._folder, path)
        except PermissionError:
            return PlainTextResponse("403 Forbidden\n", 403)
        except (OSError, ValueError):
            return PlainTextResponse("404 page not found\n", 404)
        if found.file is None:
            if path and not path.endswith("/"):
                return RedirectResponse(quote(path.rpartition("/")[2]) + "/", 301)
            return HTMLResponse(_listing(found.entries))
        if path.endswith("/"):
            found.file.close()
            return RedirectResponse("../" + quote(path.rstrip("/").rpartition("/")[2]), 301)
        return await _send(request, found, found.file, path)

    async def _query(self, request: Request) -> Response:
        try:
            # A pattern of 1000 characters may take a second to compile.
            query = await asyncio.to_thread(LogQuery.read, request.query_params.multi_items(), self._folder)
        except QueryError as error:
            return PlainTextResponse(f"{error}\n", 400)
        if query is None:
            return PlainTextResponse("404 page not found\n", 404)
        return StreamingResponse(query.answer(), media_type="text/plain")


def look_up(folder: Path, path: str) -> _Found:
    """Open a file below the folder, or list a folder. Raise OSError; ValueError where it leads outside. Blocks."""
    root = resolve(folder)
    wanted = resolve(root / path.strip("/"))
    if not wanted.is_relative_to(root):
        raise ValueError(f"{path} leads out of {folder}")
    if wanted == root:
        file = OpenFile(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    else:
        file = OpenFile(open_beneath(root, wanted))
    status = file.status()
    if stat.S_ISDIR(status.st_mode):
        return _Found(entries=tuple(file.names()))
    if not stat.S_ISREG(status.st_mode):
        raise ValueError(f"{path} is neither a file nor a folder")
    return _Found(file, status.st_size, status.st_mtime)


def _listing(entries: tuple[str, ...]) -> str:
    lines = [f'<a href="{quote(os.fsencode(name))}">{html.escape(readable(name))}</a>' for name in entries]
    head = '<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n'
    return head + "".join(f"{line}\n" for line in lines) + "</pre>\n"


async def _send(request: Request, found: _Found, file: OpenFile, path: str) -> Response:
    """Send a file or the requested range, unless the client has it already."""
    if _unchanged(request.headers.get("if-modified-since", ""), found.modified):
        file.close()
        return Response(status_code=304)
    head = await asyncio.to_thread(file.read, _SNIFFED, 0)
    plain = "application/octet-stream" if b"\0" in head else "text/plain; charset=utf-8"
    kind = mimetypes.guess_type(path)[0] or plain
    headers = {"Accept-Ranges": "bytes", "Last-Modified": formatdate(found.modified, usegmt=True), "Content-Type": kind}
    try:
        wanted = byte_range(request.headers.get("range", ""), found.size)
    except ValueError:
        file.close()
        headers |= {"Content-Range": f"bytes */{found.size}", "Content-Type": "text/plain; charset=utf-8"}
        return Response("invalid range: failed to overlap\n", 416, headers)
    begin, end = wanted or (0, found.size)
    if wanted:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{found.size}"
    headers["Content-Length"] = str(end - begin)
    return StreamingResponse(_pieces(file, begin, end), 206 if wanted else 200, headers)


async def _pieces(file: OpenFile, begin: int, end: int) -> AsyncIterator[bytes]:
    while begin < end:
        piece = await asyncio.to_thread(file.read, min(_CHUNK, end - begin), begin)
        if not piece:
            raise EOFError("the log was cut short while it was sent")
        begin += len(piece)
        yield piece
    file.close()


def byte_range(text: str, size: int) -> tuple[int, int] | None:
    """Read a Range header of one range; None without one, or with one that is to be passed over. Raise ValueError."""
    unit, _, given = text.partition("=")
    if unit.strip() != "bytes" or "," in given:
        return None
    first, dash, last = (part.strip() for part in given.partition("-"))
    if not dash or not (first or last) or not (first + last).isdigit():
        raise ValueError(text)
    if not first:
        return max(0, size - int(last)), size
    begin, end = int(first), min(int(last) + 1, size) if last else size
    if begin >= size or begin >= end:
        raise ValueError(text)
    return begin, end


def _unchanged(since: str, modified: float) -> bool:
    try:
        return bool(since) and int(modified) <= parsedate_to_datetime(since).timestamp()
    except (ValueError, OverflowError):
        return False
