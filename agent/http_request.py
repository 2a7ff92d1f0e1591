"""A GET request to a container: its URL, and the bytes of its head.

A probe's request is formed once and sent each time. Its size is limited, for whoever makes a pod chooses path and headers, and
quoting a path of a megabyte takes 0.1 s of the event loop.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, quote

from kube import urls
from kube.api import core_v1

URL_LENGTH = 8 << 10
"""Characters of a URL, also of one that a redirect leads to: as many as nginx and Apache take of a request's first line."""
HEADERS_LENGTH = 64 << 10
"""Characters of the headers' names and values together, and `HEADER_SPACE` for each: also of those that repeat a name."""
HEADER_SPACE = 4
"""Characters of a header's line beside its name and value."""
_NAME = re.compile(r"[-!#$%&'*+.^_`|~0-9a-zA-Z]+")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]*")
_NOT_SENT = ("host", "content-length", "transfer-encoding", "trailer")
"""Headers that Go's client leaves out of what it is given; Host has its own place."""
_BROKEN_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_SAFE = "/%:@!$&'()*+,;=~-._"
_ESCAPED_IN_HOST = re.compile(r"[\x00-\x20/?#@\\^`{|}\x7f]")
"""Characters that would end a host in a URL, or that Go escapes in it, and then refuses."""


@dataclass(frozen=True, slots=True)
class Headers:
    """A request's headers, checked and joined once for all redirects."""

    host: str
    """Of the Host header; "" if the URL's is sent."""
    lines: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request that can be sent any number of times."""

    url: str
    scheme: str
    host: str
    port: int
    head: bytes
    headers: Headers


def check_length(headers: Iterable[core_v1.HTTPHeader]) -> None:
    """Raise ValueError for headers of a probe or hook that are too long to be joined."""
    length = 0
    for header in headers:
        length += len(header.name) + len(header.value) + HEADER_SPACE
        if length > HEADERS_LENGTH:
            raise ValueError(f"the headers have more than {HEADERS_LENGTH} characters")


def url_of(action: core_v1.HTTPGetAction, host: str, port: int) -> str:
    """Form the URL of an httpGet action for a host, unless the action has its own. Raise ValueError with Go's message."""
    scheme, host, path = (action.scheme or "HTTP").lower(), action.host or host, action.path or "/"
    if len(host) + len(path) > URL_LENGTH:
        raise ValueError(f"the URL has more than {URL_LENGTH} characters")
    url = f"{scheme}://{urls.host_port(host, port)}{path if path.startswith('/') else '/' + path}"
    if found := _ESCAPED_IN_HOST.search(host):
        raise ValueError(f'parse "{url}": invalid URL escape "%{ord(found[0]):02X}"')
    try:
        urls.split(url)
    except ValueError as error:
        raise ValueError(f'parse "{url}": {error}') from error
    return url


def form(url: str, headers: Mapping[str, str] | Headers) -> Request:
    """Form a request; a redirect's has the headers of the one before.

    Raise ValueError for a URL that cannot be requested, or a header that cannot be sent, as Go does.
    """
    if len(url) > URL_LENGTH:
        raise ValueError(f"the URL has more than {URL_LENGTH} characters")
    parts = urls.split(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f'unsupported protocol scheme "{parts.scheme}"')
    if not parts.hostname:
        raise ValueError("http: no Host in request URL")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    path = quote(_BROKEN_ESCAPE.sub("%25", parts.path), safe=_SAFE) or "/"
    query = quote(_BROKEN_ESCAPE.sub("%25", parts.query), safe=_SAFE + "?[]")
    joined = headers if isinstance(headers, Headers) else _joined(headers)
    host = joined.host or _checked("Host", _host(parts))
    first = f"GET {path}?{query} HTTP/1.1" if query else f"GET {path} HTTP/1.1"
    head = f"{first}\r\nHost: {host}\r\n{joined.lines}\r\n".encode(errors="replace")
    return Request(url, parts.scheme, parts.hostname, port, head, joined)


def _joined(headers: Mapping[str, str]) -> Headers:
    if sum(len(name) + len(value) for name, value in headers.items()) > HEADERS_LENGTH:
        raise ValueError(f"the headers have more than {HEADERS_LENGTH} characters")
    lines, connection, host = [], "close", ""
    for name, value in headers.items():
        value = _checked(name, value)
        if name.lower() == "host":
            host = host or value
        if name.lower() == "connection":
            connection = value
        elif name.lower() not in _NOT_SENT:
            lines.append(f"{name}: {value}")
    return Headers(host, "".join(f"{line}\r\n" for line in (*lines, f"Connection: {connection}")))


def _checked(name: str, value: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"net/http: invalid header field name {json.dumps(name)}")
    if not _VALUE.fullmatch(value):
        raise ValueError(f"net/http: invalid header field value for {json.dumps(name)}")
    return value.strip(" \t")


def _host(parts: SplitResult) -> str:
    """Return a URL's host and port without a user and without an address's zone."""
    host = parts.netloc.rpartition("@")[2]
    host = re.sub("%[^]]*]", "]", host)
    return host if host.isascii() else host.encode("idna").decode()
