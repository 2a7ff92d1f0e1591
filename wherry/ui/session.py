"""The one-time link of the page and the session that it is exchanged for.

A browser sends a cookie of an address to every port of it, also to servers of other users of the machine. So a session
has two secrets, and each request needs both: the cookie, which scripts cannot read, and a token that the page stores for its
own origin, of which the port is a part, and sends in a header.
"""

from __future__ import annotations

import hmac
import secrets
from dataclasses import dataclass, field

COOKIE = "wherry-ui-{}"
"""Name of the cookie, with the port: pages of several clusters can be open at a time."""
HEADER = "x-wherry-page"


def _secret() -> str:
    return secrets.token_urlsafe(32)


@dataclass(slots=True)
class Session:
    """One link, and the session of the browser that used it."""

    link: str = field(default_factory=_secret)
    cookie: str = ""
    token: str = ""

    @property
    def used(self) -> bool:
        """Return whether the link was exchanged."""
        return bool(self.cookie)

    def exchange(self, link: str) -> bool:
        """Begin the session if this is the link and nobody has used it before."""
        if self.used or not _same(link, self.link):
            return False
        self.cookie, self.token = _secret(), _secret()
        return True

    def valid(self, cookie: str, token: str) -> bool:
        """Return whether both secrets of a request are those of the session."""
        return self.used and _same(cookie, self.cookie) and _same(token, self.token)


def _same(given: str, expected: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), expected.encode())
