"""Handover of a connection that was upgraded: its bytes go to a new owner, and uvicorn's machinery is out of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kube.serving.protocol import BoundedProtocol


class TakeoverProtocol(BoundedProtocol):
    """One connection, whose owner may ask for all its bytes."""

    on_lost: Callable[[], None] | None = None
    """Called once when the connection ends."""

    def takeover(self, on_data: Callable[[bytes], None], on_lost: Callable[[], None]) -> asyncio.Transport:
        """Give the connection to `on_data`; `on_lost` is called once when it ends. Returns the transport to write to.

        Only the request that asked for another protocol may call it.
        """
        self.successor, self.on_lost, self.may_read_slowly = on_data, on_lost, True
        self._unset_keepalive_if_required()
        if self.upgrading is not None:  # the client may have gone
            self.upgrading.response_started = self.upgrading.response_complete = True
        early, self.early = self.early, b""
        self.flow.resume_reading()
        if early:
            on_data(early)
        return self.transport

    def connection_lost(self, exc: Exception | None) -> None:
        """Notify the owner of a hijacked connection too."""
        if self.on_lost is not None:
            self.on_lost()
            self.successor = self.on_lost = None
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self.successor is not None:
            self.transport.close()
        else:
            super().shutdown()
