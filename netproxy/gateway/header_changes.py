"""Changes of headers by routes.

Authors of routes may change any header but those that frame messages, belong to the connection, or select what answers a
request: with them a route could have a backend read a second request out of the body of the first. What a route sets or removes
goes in the spelling with underscores too, which CGI and WSGI do not distinguish: clients could restore it otherwise.
"""

from __future__ import annotations

import re

from kube.gateway.model import HeaderChange

Header = tuple[bytes, bytes]
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"http2-settings",
    }
)
LOOP = b"cdn-loop"
"""Counts the gateways that a request has passed (RFC 8586)."""
CONNECTION_NAMES = 64
"""Names of headers in all `Connection` headers of a message."""
_FIXED = HOP_BY_HOP | {b"content-length", b"host", b"expect", LOOP}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,256}")
_VALUE = re.compile(r"[^\x00-\x08\x0a-\x1f\x7f]{0,4096}")


class HeaderEdit:
    """Changes of a list of headers with names in lower case."""

    __slots__ = ("_add", "_dropped", "_set")

    def __init__(self, change: HeaderChange) -> None:
        self._set = _pairs(change.set)
        self._add = _pairs(change.add)
        removed = {name.lower().encode("latin-1", "replace") for name in change.remove} - _FIXED
        self._dropped = frozenset(_as_cgi(name) for name in removed | {name for name, _ in self._set}) - _FIXED

    def apply(self, headers: list[Header]) -> list[Header]:
        """Return the headers with the changes: set, then add, then remove."""
        if self._dropped:
            headers = [header for header in headers if _as_cgi(header[0]) not in self._dropped]
        return [*headers, *self._set, *self._add]


def edit(change: HeaderChange | None) -> HeaderEdit | None:
    """Return the changes that a route makes, None if it makes none."""
    return None if change is None else HeaderEdit(change)


def connection_names(values: list[bytes]) -> set[bytes] | None:
    """Return the names of headers in the values of `Connection` headers; None if there are too many."""
    if sum(value.count(b",") + 1 for value in values) > CONNECTION_NAMES:
        return None
    return {token.strip(b" \t").lower() for value in values for token in value.split(b",")}


def _as_cgi(name: bytes) -> bytes:
    return name.replace(b"_", b"-") if b"_" in name else name


def _pairs(pairs: tuple[tuple[str, str], ...]) -> list[Header]:
    """Return valid headers, without those that no route may change."""
    found = []
    for name, value in pairs:
        lowered = name.lower().encode("latin-1", "replace")
        text = value.strip(" \t")
        if _NAME.fullmatch(name) and _VALUE.fullmatch(text) and _as_cgi(lowered) not in _FIXED:
            found.append((lowered, text.encode("utf-8")))
    return found
