"""Serves an application on connections inside this process, by the kubelet's own protocol (agent/server/protocol.py)."""

from __future__ import annotations

import socket
from typing import Any

from agent.server import listeners
from agent.streaming.upgrade import Stream
from kube.serving.limits import ServingLimits
from kube.serving.server import BoundedServer
from wherry.testing.kubelet.pairs import stream_of

CLIENT = "system:apiserver"
"""User that all connections count for."""


class LocalServer:
    """One server; it has no socket that listens."""

    def __init__(self, app: Any) -> None:
        config = listeners.settings(app)
        config.load()
        self._server = BoundedServer(config, ServingLimits())

    async def connect(self) -> Stream:
        """Open a connection and return the client's end. Raise OSError if there are too many."""
        ours, theirs = socket.socketpair()
        try:
            await self._server.serve_connected(theirs, CLIENT)
        except BaseException:
            ours.close()
            raise
        return await stream_of(ours)
