"""Errors of connections in words, without names of classes, which are all that some errors of Python have as a text."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator

_WITHOUT_TEXT: dict[type[BaseException], str] = {
    TimeoutError: "timed out",
    ConnectionRefusedError: "connection refused",
    ConnectionResetError: "connection reset by peer",
    ConnectionAbortedError: "connection aborted",
    BrokenPipeError: "broken pipe",
    EOFError: "the connection has ended",
}


def words(error: BaseException) -> str:
    """Return why a request failed."""
    # The own text of aiohttp's ClientConnectorError contains the representation of the TLS context.
    inner = getattr(error, "os_error", None)
    if isinstance(inner, OSError):
        error = inner
    if isinstance(error, ssl.SSLError | socket.gaierror):
        return error.strerror or str(error) or _named(error)
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or _named(error)


def cause(error: BaseException) -> str:
    """Return the operating system's reason of an error that libraries have wrapped, or else the error's own text."""
    system = [each for each in _chain(error) if isinstance(each, OSError) and each.errno]
    return words(system[-1] if system else error)


def _named(error: BaseException) -> str:
    """Return words for an error that has no text."""
    for kind, text in _WITHOUT_TEXT.items():
        if isinstance(error, kind):
            return text
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(error).__name__.removesuffix("Error") or "error").lower()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
