"""Filters of routes: changes of headers, redirects and rewrites. Others are not supported.

A rule with an unsupported filter is not served without it: the filter may be the one that keeps clients out. Neither is one
that would change the headers that delimit messages, since other routes use the same connections.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kube.gateway.model import Filters, HeaderChange, Pair, PathChange, Redirect
from kube.gateway.objects import Header, HeaderModifier, PathModifier, RequestRedirect, RouteFilter, URLRewrite
from kube.group_patterns import fullmatch

_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]{0,4096}")
_PATH = re.compile(r"[!-~]{0,1024}")
FRAMING = frozenset(
    "connection content-length expect host http2-settings keep-alive proxy-connection te trailer "
    "transfer-encoding upgrade".split()
)
"""Headers that a filter may not change: those between two machines, and those that decide where a message ends or goes."""


class Unsupported(Exception):
    """A rule cannot be served; the message is the reason."""


def convert(filters: Sequence[RouteFilter]) -> Filters:
    """Convert the filters of a rule or backend; raises Unsupported."""
    request = response = None
    redirect: Redirect | None = None
    hostname, path = "", None
    for each in filters:
        match each.type:
            case "RequestHeaderModifier" if each.request_header_modifier is not None:
                request = _headers(each.request_header_modifier)
            case "ResponseHeaderModifier" if each.response_header_modifier is not None:
                response = _headers(each.response_header_modifier)
            case "RequestRedirect" if each.request_redirect is not None:
                redirect = _redirect(each.request_redirect)
            case "URLRewrite" if each.url_rewrite is not None:
                hostname, path = _rewrite(each.url_rewrite)
            case _:
                raise Unsupported(f"filter {each.type} is not supported")
    if redirect is not None and (hostname or path is not None):
        raise Unsupported("RequestRedirect and URLRewrite exclude each other")
    return Filters(request, response, redirect, hostname, path)


def _headers(modifier: HeaderModifier) -> HeaderChange:
    return HeaderChange(
        tuple(map(_pair, modifier.set)), tuple(map(_pair, modifier.add)), tuple(map(_name, modifier.remove))
    )


def _name(name: str) -> str:
    lower = name.lower()
    if not fullmatch(_NAME, lower):
        raise Unsupported("a filter has an invalid header name")
    if lower in FRAMING:
        raise Unsupported(f"a filter cannot change header {name}")
    return lower


def _pair(header: Header) -> Pair:
    if not fullmatch(_VALUE, header.value) or header.value != header.value.strip(" \t"):
        raise Unsupported(f"a filter has an invalid value of header {header.name[:64]}")
    return _name(header.name), header.value


def _path(modifier: PathModifier | None) -> PathChange | None:
    if modifier is None:
        return None
    if modifier.type == "ReplaceFullPath":
        kind, value = modifier.type, modifier.replace_full_path
    elif modifier.type == "ReplacePrefixMatch":
        kind, value = modifier.type, modifier.replace_prefix_match
    else:
        raise Unsupported(f"path modifier {modifier.type} is not supported")
    if not fullmatch(_PATH, value) or "#" in value or (value and not value.startswith("/")):
        raise Unsupported("a filter has an invalid path")
    return PathChange(kind, value)  # type: ignore[arg-type]


def _redirect(redirect: RequestRedirect) -> Redirect:
    return Redirect(redirect.scheme, redirect.hostname, redirect.port, _path(redirect.path), redirect.status_code)


def _rewrite(rewrite: URLRewrite) -> tuple[str, PathChange | None]:
    return rewrite.hostname, _path(rewrite.path)
