"""Errors of a gateway."""

from __future__ import annotations


class Refused(Exception):
    """A request is answered by the gateway itself: status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class BackendError(Exception):
    """A backend cannot be reached, has closed the connection, or sends what is no HTTP."""


class BackendTimeout(BackendError):
    """A backend is too slow."""


class ClientGone(Exception):
    """The client has closed its connection."""
