"""Parses the query of a URL like Go's net/url, which clients, extension servers and upstream's API server use.

A pair with a semicolon or an invalid percent escape is ignored. With a more lenient parser it could turn a request for many
objects into one for a single name, the only one that its user may read, while the next server ignores the option. So a
proxied request is sent with the parsed options, not with the original query.
Upstream: apiserver, kube-aggregator's handler_proxy.go (`req.URL.Query().Encode()`).
"""

from __future__ import annotations

import re
from urllib.parse import unquote_to_bytes, urlencode

_ESCAPED = re.compile(rb"(?:[^%]|%[0-9A-Fa-f]{2})*+")


def read(query: bytes) -> dict[str, list[str]]:
    """Return the values of each option, in order, without the pairs that are malformed."""
    found: dict[str, list[str]] = {}
    for pair in query.split(b"&"):
        if not pair or b";" in pair:
            continue
        name, _, value = pair.partition(b"=")
        if b"%" in pair or b"+" in pair:
            if _ESCAPED.fullmatch(pair) is None:
                continue
            name, value = (unquote_to_bytes(part.replace(b"+", b" ")) for part in (name, value))
        found.setdefault(name.decode(errors="replace"), []).append(value.decode(errors="replace"))
    return found


def write(options: dict[str, list[str]]) -> str:
    """Encode options as a query that every server parses in the same way."""
    return urlencode(options, doseq=True)
