"""Charges a connection with the received part of a request's incomplete body.

What all connections hold of such bodies is limited, and for each user what slow clients hold (kube/serving/table.py):
otherwise bodies of which the last byte never comes would take all memory. A client that sends fast counts only to the former.
"""

from __future__ import annotations

import asyncio

from control.http.protocol import ApiProtocol

SLOW_SECONDS = 1.0
"""Seconds after which the received part of a body counts to what slow clients of one user may hold."""


class BodyCharge:
    """The charge of one request; only bodies that come in several parts have one."""

    __slots__ = ("_protocol", "_size", "_slow", "_timer")

    def __init__(self, protocol: ApiProtocol) -> None:
        self._protocol, self._size, self._slow = protocol, 0, False
        self._timer = asyncio.get_running_loop().call_later(SLOW_SECONDS, self._is_slow)

    def note(self, size: int) -> None:
        """Charge the connection with so many bytes."""
        self._size = size
        self._protocol.table.hold_body(self._protocol.connection, size, slow=self._slow)

    def complete(self) -> None:
        """Charge a complete body, which waits for the server, to the limit of all connections only."""
        self._timer.cancel()
        if self._slow:
            size, self._slow = self._size, False
            self.note(0)
            self.note(size)

    def release(self) -> None:
        """Charge the connection no longer."""
        self._timer.cancel()
        self._slow = False
        self.note(0)

    def _is_slow(self) -> None:
        self._slow = True
        self.note(self._size)
