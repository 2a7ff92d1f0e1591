"""Request header authentication: an authenticating proxy has a client certificate, and names the user in headers.

The headers are believed only on a connection whose client certificate was signed by the front-proxy authority (an authority of
its own) for one of the allowed names; on any other connection they are as if not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from urllib.parse import unquote

import msgspec
from cryptography import x509

from control.auth.user import Credentials, UserInfo
from control.auth.x509 import CertificateAuthenticator
from control.config import ControlConfig
from kube.clock import Clock
from kube.errors import StatusError


class Headers(msgspec.Struct, frozen=True):
    """Names as upstream's --requestheader-* flags have them; of several the first that is sent counts for the user's name."""

    username: tuple[str, ...] = ("X-Remote-User",)
    uid: tuple[str, ...] = ("X-Remote-Uid",)
    group: tuple[str, ...] = ("X-Remote-Group",)
    extra_prefixes: tuple[str, ...] = ("X-Remote-Extra-",)


def request_headers(config: ControlConfig) -> Headers:
    """Return the names that a server's configuration gives."""
    return Headers(
        config.requestheader_username_headers,
        config.requestheader_uid_headers,
        config.requestheader_group_headers,
        config.requestheader_extra_headers_prefix,
    )


class Clearing:
    """Takes the configured headers off requests once their user is known, so that no extension server believes a client's.

    Extension servers read the names from ConfigMap `extension-apiserver-authentication`. The names that this server
    itself sends (the defaults) are replaced where a request is passed on (`control.http.http1`).
    """

    def __init__(self, headers: Headers) -> None:
        default = Headers()
        lists = zip(_lists(headers), _lists(default), strict=True)
        *named, prefixes = (tuple(name for name in mine if name not in usual) for mine, usual in lists)
        self._names = frozenset(name for found in named for name in found)
        self._prefixes = prefixes
        self.wanted = bool(self._names or prefixes)

    def clears(self, name: bytes) -> bool:
        lowered = name.lower()
        return lowered in self._names or lowered.startswith(self._prefixes)


def _lists(headers: Headers) -> tuple[tuple[bytes, ...], ...]:
    found = (headers.username, headers.uid, headers.group, headers.extra_prefixes)
    return tuple(tuple(name.lower().encode() for name in names) for names in found)


class RequestHeaderAuthenticator:
    """Believes proxies with certificates of `authorities`; `names` are their common names, none: any."""

    def __init__(
        self,
        authorities: Callable[[], Sequence[x509.Certificate]],
        names: Sequence[str],
        clock: Clock,
        headers: Headers | None = None,
    ) -> None:
        self._certificates = CertificateAuthenticator(authorities, clock)
        self._names = frozenset(names)
        headers = headers or Headers()
        self._username, self._uid, self._group, self._extra = _lists(headers)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        """Return the user in the proxy's headers; None if the client is no proxy."""
        if credentials.certificate is None or not credentials.headers:
            return None
        name = _first(credentials.headers, self._username)
        if not name:
            return None
        try:
            proxy = self._certificates.user(credentials.certificate)
        except StatusError:
            return None  # headers that anybody can send; the certificate may make the sender somebody all the same
        if self._names and proxy.name not in self._names:
            return None
        groups = tuple(_text(value) for key, value in credentials.headers if key in self._group)
        extra: dict[str, tuple[str, ...]] = {}
        for key, value in credentials.headers:
            for prefix in self._extra:
                if key.startswith(prefix):
                    found = unquote(key[len(prefix) :].decode("latin-1")).lower()
                    extra[found] = (*extra.get(found, ()), _text(value))
        return UserInfo(name, _first(credentials.headers, self._uid), groups, extra)


def _first(headers: Sequence[tuple[bytes, bytes]], names: Sequence[bytes]) -> str:
    for wanted in names:
        for key, value in headers:
            if key == wanted and value:
                return _text(value)
    return ""


def _text(value: bytes) -> str:
    """Read a header's value: UTF-8, as this server and upstream's aggregator write it."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
