"""Changes of a request's path, and the locations of redirects. Texts come from routes, whose authors may write anything."""

from __future__ import annotations

import re

from kube.gateway.model import PathChange, Redirect
from netproxy.gateway.errors import Refused
from netproxy.gateway.request_target import RequestTarget, written_path

_HOSTNAME = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_PORTS = {"http": 80, "https": 443}
_STATUSES = (301, 302, 303, 307, 308)


def valid_hostname(text: str) -> str:
    """Return a hostname, "" for what is none."""
    return text.lower() if _HOSTNAME.fullmatch(text.lower()) else ""


class PathEdit:
    """A new path, or a new prefix in place of the matched one."""

    __slots__ = ("_full", "_path")

    def __init__(self, change: PathChange) -> None:
        self._full = change.kind == "ReplaceFullPath"
        self._path = written_path(change.value)

    def apply(self, path: str, prefix: str) -> str:
        """Return the path of a request that has been matched by this prefix."""
        if self._full:
            return self._path
        return (self._path.rstrip("/") + path[len(prefix) :]) or "/"


def redirect_location(redirect: Redirect, target: RequestTarget, prefix: str, scheme: str, port: int) -> str:
    """Return the URL that a redirect leads to; `scheme` and `port` are the listener's. Refused if no host is known."""
    wanted = redirect.scheme if redirect.scheme in _PORTS else ""
    number = redirect.port or (_PORTS[wanted] if wanted else port)
    scheme = wanted or scheme
    host = valid_hostname(redirect.hostname) or target.host
    if not host:
        raise Refused(400, "missing Host header")
    suffix = "" if number == _PORTS[scheme] else f":{number}"
    path = target.path if redirect.path is None else PathEdit(redirect.path).apply(target.path, prefix)
    return f"{scheme}://{host}{suffix}{path}{target.query}"


def redirect_status(redirect: Redirect) -> int:
    """Return the status of a redirect."""
    return redirect.status if redirect.status in _STATUSES else 302
