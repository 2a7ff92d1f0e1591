"""Parser of one response: its head within limits, its body in parts, and whether another response may follow it."""

from __future__ import annotations

from typing import cast

import httptools

from netproxy.gateway.errors import BackendError
from netproxy.gateway.header_changes import Header
from netproxy.gateway.limits import BackendLimits
from netproxy.gateway.response import ResponseHead, response_head

HEAD_BYTES = 256
"""Bytes of a head that are checked in the time of a call."""
PARTS = 64
"""Parts of a body that are kept apart; each takes some 50 bytes more than its own."""


class ResponseParser:
    """`head_only`: the response has no body, `upgrade`: it may be a 101."""

    def __init__(self, limits: BackendLimits, *, head_only: bool, upgrade: bool) -> None:
        self._limits = limits
        self._parser = httptools.HttpResponseParser(self)
        self._head_only, self._upgrade = head_only, upgrade
        self.head: ResponseHead | None = None
        self.received = False
        """A byte of the response has come."""
        self.complete = self.upgraded = False
        self.reusable = False
        """The connection may be used for another request."""
        self.parts: list[bytes] = []
        self.buffered = 0
        """Bytes of the parts."""
        self.calls = 0
        """Calls of the parser for headers and parts of a body, and once more for headers that are checked and copied: what
        parsing costs, if they are small."""
        self._headers: list[Header] = []
        self._beside = self._announced = 0

    def feed(self, data: bytes) -> bytes:
        """Parse data and return what follows a 101; BackendError if it is no valid response."""
        self.received = True
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            if not self.upgraded:
                raise BackendError("an upgrade that was not requested") from upgrade
            return data[upgrade.args[0] :]
        except httptools.HttpParserError as error:
            cause = error.__context__
            raise cause if isinstance(cause, BackendError) else BackendError("the response is no valid HTTP") from error
        if len(self.parts) > PARTS:
            self.parts = [b"".join(self.parts)]
        if self._beside > self._limits.head_bytes and not self.complete:
            raise BackendError("the response has too large a head")
        return b""

    def end(self) -> None:
        """Take the orderly end of the connection for that of the response, if nothing else ends it."""
        if self.head is not None and self.head.until_close:
            self.complete = True

    def take(self) -> bytes:
        """Return what has come of the body."""
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        self.parts, self.buffered = [], 0
        return data

    # -- the parser's calls ---------------------------------------------------------------------------------------
    def on_message_begin(self) -> None:
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        self.calls += 1
        if self.head is not None:
            return  # a trailer
        self._headers.append((name.lower(), value))
        if len(self._headers) > self._limits.headers:
            raise BackendError("the response has too many headers")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if self.complete:
            raise BackendError("the backend has sent what was not requested")
        if status < 200 and status != 101:
            self._announced += 1
            if self._announced > self._limits.announcements:
                raise BackendError("too many 1xx responses")
            self._headers = []
            return
        if status == 101 and not (self._upgrade and any(name == b"upgrade" for name, _ in self._headers)):
            raise BackendError("an upgrade that was not requested")
        self.calls += len(self._headers) + self._beside // HEAD_BYTES
        self.head = response_head(status, self._headers, head_only=self._head_only)
        self._beside = 0
        if status == 101:
            self.upgraded = True
        elif self._head_only:
            self.complete = True
            self.reusable = cast(bool, self._parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        self.calls += 1
        if self._head_only:
            self.reusable = False
            return
        self.parts.append(body)
        self.buffered += len(body)
        self._beside = 0

    def on_message_complete(self) -> None:
        if self.head is None or self.upgraded or self._head_only or self.head.until_close:
            return
        self.complete = True
        self.reusable = cast(bool, self._parser.should_keep_alive())
