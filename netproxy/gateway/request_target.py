"""A request's host and path, in the one form that is compared with routes and sent to backends.

A backend must not read another path than the one that was matched. So dot segments are removed and unreserved characters
decoded (RFC 3986, 6.2.2), and a path is refused that has dot segments only for servers which take an encoded slash or a
backslash for a slash, or ignore what follows a semicolon, encoded or not. Encoded slashes remain as they are otherwise.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import parse_qsl, quote

from kube.bounded_cache import bounded_cache
from netproxy.gateway.errors import Refused

_PLAIN = re.compile(r"/[A-Za-z0-9._~!$&'()*+,=:@/-]*")
_PATH = re.compile(r"/(?:[!\"$&-\[\\\]-~]|%[0-9A-Fa-f]{2})*")
_QUERY = re.compile(rb"[!\"$-~]*")
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_ABSOLUTE = re.compile(rb"https?://([^/?#]*)([^#]*)", re.IGNORECASE)
_HOST = re.compile(r"([A-Za-z0-9_](?:[A-Za-z0-9._-]{0,253})|\[[0-9A-Fa-f:.]{2,45}\])(?::([0-9]{0,5}))?")
_DOT_SEGMENT = re.compile(r"(?:/|\\|%2F|%5C)\.{1,2}(?:[/\\;]|%2F|%5C|%3B|\Z)")
"""A dot segment for some server; slashes, backslashes and semicolons may be encoded."""
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DOTS = (".", "..")
_DECODED = {
    text: chr(int(code, 16)) if chr(int(code, 16)) in _UNRESERVED else text.upper()
    for code in (high + low for high in "0123456789abcdefABCDEF" for low in "0123456789abcdefABCDEF")
    for text in (f"%{code}",)
}
"""Normal forms of encoded characters."""
PARAMETERS = 256
"""Parameters of a query that are compared with routes."""


@dataclass(frozen=True, slots=True)
class WrittenTarget:
    """A target as the client wrote it: its path and query cost more than its host, whose namespace pays for them."""

    authority: str
    host: str
    rest: bytes

    def normal(self) -> RequestTarget:
        """Return the target in its normal form; Refused if it is ambiguous or invalid."""
        path, mark, query = self.rest.partition(b"?")
        if query and not _QUERY.fullmatch(query):
            raise Refused(400, "invalid query")
        return RequestTarget(
            self.authority, self.host, normalize_path(path.decode("latin-1")), (mark + query).decode("ascii")
        )


@dataclass(frozen=True, slots=True)
class RequestTarget:
    """`authority` is the host as the client wrote it, `host` its name in lower case without port.

    `query` is empty or begins with its question mark.
    """

    authority: str
    host: str
    path: str
    query: str


def split(target: bytes, hosts: list[bytes], *, requires_host: bool) -> WrittenTarget:
    """Return the host and the rest of a target; Refused if they are ambiguous. `hosts`: values of the Host headers."""
    if len(hosts) > 1:
        raise Refused(400, "more than one Host header")
    if requires_host and not hosts:
        raise Refused(400, "missing Host header")
    authority = hosts[0] if hosts else b""
    if not target.startswith(b"/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is None:
            raise Refused(400, "invalid request target")
        # The authority of the target replaces the header's (RFC 9112, 3.2.2).
        authority, target = absolute[1], absolute[2]
        if not target.startswith(b"/"):
            target = b"/" + target
        if not authority:
            raise Refused(400, "invalid request target")
    text = authority.decode("latin-1")
    return WrittenTarget(text, parse_host(text)[0] if text else "", target)


@bounded_cache(1024)
def parse_host(text: str) -> tuple[str, str]:
    """Return a Host header's name, in lower case and without a dot at its end, and its port; Refused if it is invalid."""
    found = _HOST.fullmatch(text)
    if found is None or ".." in found[1]:
        raise Refused(400, "invalid Host header")
    return found[1].lower().removesuffix("."), found[2] or ""


def normalize_path(path: str) -> str:
    """Return a path in its normal form; Refused if it is invalid or some servers would read another path."""
    if _PLAIN.fullmatch(path) and "/." not in path:
        return path
    if not _PATH.fullmatch(path) or "%00" in path:
        raise Refused(400, "invalid path")
    path = _ENCODED.sub(_decoded, path)
    if "/." in path:
        path = _remove_dots(path)
    if _DOT_SEGMENT.search(path):
        raise Refused(400, "ambiguous path")
    return path


def written_path(text: str) -> str:
    """Return the normal form of a path in a route, whose author may have written any characters."""
    try:
        return normalize_path(quote(text if text.startswith("/") else f"/{text}", safe="/:@!$&'()*+,;=~-._%"))
    except Refused:
        return quote(text if text.startswith("/") else f"/{text}", safe="/:@!$&'()*+,;=~-._")


def _decoded(found: re.Match[str]) -> str:
    return _DECODED[found[0]]


def _remove_dots(path: str) -> str:
    """Remove dot segments (RFC 3986, 5.2.4)."""
    kept: list[str] = []
    parts = path.split("/")[1:]
    for part in parts:
        if part == "..":
            if kept:
                kept.pop()
        elif part != ".":
            kept.append(part)
    if parts[-1] in _DOTS:
        kept.append("")
    return "/" + "/".join(kept)


def parameters(query: str) -> dict[str, str]:
    """Return the first value of each of the first `PARAMETERS` parameters of a query (RequestTarget.query)."""
    if query.count("&") >= PARAMETERS:
        query = "&".join(query.split("&", PARAMETERS)[:PARAMETERS])
    found: dict[str, str] = {}
    for name, value in parse_qsl(query[1:], keep_blank_values=True, encoding="utf-8", errors="replace"):
        found.setdefault(name, value)
    return found
