"""A backend's response as its parser reports it: head, body, end."""

from __future__ import annotations

import re
from dataclasses import dataclass

from netproxy.gateway.errors import BackendError
from netproxy.gateway.header_changes import HOP_BY_HOP, Header, connection_names

_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_INVALID = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_WITHOUT_BODY = (204, 304)


@dataclass(slots=True)
class ResponseHead:
    """A response's head. `length`: bytes of body, None if they come in chunks or end with the connection."""

    status: int
    headers: list[Header]
    length: int | None
    until_close: bool


def response_head(status: int, headers: list[Header], *, head_only: bool) -> ResponseHead:
    """Return a head without the headers that belong to the connection; BackendError if its framing is ambiguous.

    `head_only`: the request was a HEAD, so that no body follows.
    """
    codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
    lengths = {value for name, value in headers if name == b"content-length"}
    if codings and (codings != [b"chunked"] or lengths):
        raise BackendError("a response with an ambiguous length")
    if len(lengths) > 1 or any(not value.isdigit() or len(value) > 18 for value in lengths):
        raise BackendError("a response with an invalid length")
    length = int(next(iter(lengths))) if lengths else None
    kept = end_to_end(headers)
    if status in _WITHOUT_BODY or head_only:
        if length is not None and status != 204:
            kept.append((b"content-length", b"%d" % length))
        return ResponseHead(status, kept, 0, until_close=False)
    return ResponseHead(status, kept, length, until_close=not codings and length is None)


def end_to_end(headers: list[Header]) -> list[Header]:
    """Return headers without those of the connection, those that it names, and the length; BackendError if one is invalid."""
    named = connection_names([value for name, value in headers if name == b"connection"])
    if named is None:
        raise BackendError("a response with too many names in Connection")
    for name, value in headers:
        if not _TOKEN.fullmatch(name) or _INVALID.search(value):
            raise BackendError("a response with an invalid header")
    dropped = named | {b"content-length"}
    return [header for header in headers if header[0] not in HOP_BY_HOP and header[0] not in dropped]
