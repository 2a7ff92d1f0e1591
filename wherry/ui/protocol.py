"""HTTP of the page's server, whose connections can be taken over for a WebSocket."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kube.serving.protocol import UPGRADE
from kube.serving.takeover import TakeoverProtocol

_PROTOCOL = "wherry.page"
SESSION = "session"
"""Name that connections of the session are counted by."""


class PageProtocol(TakeoverProtocol):
    """One connection."""

    def on_message_begin(self) -> None:
        """Add the connection to the scope."""
        super().on_message_begin()
        extensions: dict[str, Any] = {_PROTOCOL: self}
        self.scope["extensions"] = extensions


def connection_of(scope: Mapping[str, Any]) -> PageProtocol | None:
    """Return the connection of a request that asks for another protocol, None for other requests."""
    found = _connection(scope)
    return found if scope.get(UPGRADE) else None


def identify(scope: Mapping[str, Any]) -> None:
    """Record that the connection of a request is the session's: floods of other users' connections do not close it."""
    found = _connection(scope)
    if found is not None:
        found.identified(SESSION)


def _connection(scope: Mapping[str, Any]) -> PageProtocol | None:
    found = scope.get("extensions", {}).get(_PROTOCOL)
    return found if isinstance(found, PageProtocol) else None
