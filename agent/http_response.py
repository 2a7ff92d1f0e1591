"""Parsing of a container's response to a GET request.

Whoever answers is not trusted. The head is parsed line by line with Go's rules and words (net/textproto), for users know and
search for those, and no expression may backtrack: a line may be 64 KB of spaces. llhttp parses the body; it gets only the
header that says where the body ends. Both take time in proportion to what comes.
"""

from __future__ import annotations

import json
import re

import httptools

BROKEN = "net/http: HTTP/1.x transport connection broken: "
PIECES = 128
"""Chunks that are read of a body at most."""
_FOLD = re.compile(rb"\r?\n[ \t]+")
_HEADER = re.compile(rb"([-!#$%&'*+.^_`|~0-9A-Za-z]+):([^\x00-\x08\x0a-\x1f\x7f]*)")
_VERSION = re.compile(r"HTTP/[0-9]\.[0-9]")
_WITHOUT_BODY = (204, 304)


class ResponseError(Exception):
    """The received bytes are not a response, or exceed a limit."""


class BodyError(ResponseError):
    """The same, in an answer's body."""


def status_of(line: bytes) -> int:
    """Return the status of an answer's first line. Raise ResponseError."""
    text = line.removesuffix(b"\r").decode(errors="replace")
    version, space, rest = text.partition(" ")
    if not space:
        raise ResponseError(f"{BROKEN}malformed HTTP response {json.dumps(text)}")
    code = rest.lstrip(" ").partition(" ")[0]
    if not (len(code) == 3 and code.isascii() and code.isdigit()):
        raise ResponseError(f"{BROKEN}malformed HTTP status code {json.dumps(code)}")
    if not _VERSION.fullmatch(version):
        raise ResponseError(f"{BROKEN}malformed HTTP version {json.dumps(version)}")
    return int(code)


def headers_of(head: bytes) -> dict[bytes, list[bytes]]:
    """Return the values of a head's headers by their names in lower case. Raise ResponseError."""
    found: dict[bytes, list[bytes]] = {}
    for ended in _FOLD.sub(b" ", head.partition(b"\n")[2]).split(b"\n"):
        line = ended.removesuffix(b"\r")
        if not line:
            continue
        header = _HEADER.fullmatch(line)
        if header is None:
            raise ResponseError(f"{BROKEN}malformed MIME header line: {line.decode(errors='replace')}")
        found.setdefault(header[1].lower(), []).append(header[2].strip(b" \t"))
    return found


class Body:
    """An answer's body up to a length; `done` once it has come as a whole."""

    def __init__(self, status: int, headers: dict[bytes, list[bytes]], most: int) -> None:
        self.content, self.done = b"", False
        self._most, self._pieces = most, 0
        end = _end_of_body(status, headers)
        self.ends_with_connection = not end
        self._parser = httptools.HttpResponseParser(self)
        self._parser.feed_data(b"HTTP/1.1 200 OK\r\n%b\r\n" % end)

    @property
    def suffices(self) -> bool:
        return self.done or self._pieces >= PIECES or len(self.content) >= self._most

    def feed(self, data: bytes) -> None:
        """Parse more of it. Raise BodyError."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            if not self.suffices:  # what comes after the body, or after its beginning, is of no interest
                raise BodyError("malformed chunked encoding") from error

    def end(self) -> None:
        """Take the connection's end into account. Raise BodyError if the body is not whole."""
        if not self.ends_with_connection:
            raise BodyError("unexpected EOF")
        self.done = True

    def on_body(self, data: bytes) -> None:
        if not self.suffices:
            self._pieces += 1
            self.content += data[: self._most - len(self.content)]

    def on_message_complete(self) -> None:
        self.done = True


def _end_of_body(status: int, headers: dict[bytes, list[bytes]]) -> bytes:
    """Return the header that determines the end of the body; nothing if the connection's end does (net/http, transfer.go)."""
    coding, lengths = headers.get(b"transfer-encoding", []), set(headers.get(b"content-length", []))
    if status in _WITHOUT_BODY:
        return b"Content-Length: 0\r\n"
    if coding:
        if [each.lower() for each in coding] != [b"chunked"]:
            raise ResponseError(f"{BROKEN}unsupported transfer encoding: {_quoted(b', '.join(coding))}")
        return b"Transfer-Encoding: chunked\r\n"
    if len(lengths) > 1:
        problem = "http: message cannot contain multiple Content-Length headers; got"
        raise ResponseError(f"{BROKEN}{problem} [{' '.join(map(_quoted, headers[b'content-length']))}]")
    for length in lengths:
        if not length.isdigit() or len(length) > 18:
            raise ResponseError(f"{BROKEN}bad Content-Length {_quoted(length)}")
        return b"Content-Length: %b\r\n" % length
    return b""


def _quoted(text: bytes) -> str:
    return json.dumps(text.decode(errors="replace"))
