"""The container runtime's end of sessions, as the server sees it: each session is a function that connects to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from agent.interfaces import PodView
from agent.runtime_records import ContainerRecord
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Dial


class SessionError(Exception):
    """The session cannot begin: HTTP status and text."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SessionBackends(Protocol):
    """Prepares sessions, and returns what dials them: a connection that speaks SPDY/3.1, as a runtime's streaming server.

    All raise SessionError for a session that cannot begin.
    """

    async def exec(
        self, view: PodView, record: ContainerRecord, command: Sequence[str], options: StreamOptions
    ) -> Dial: ...

    async def attach(self, view: PodView, record: ContainerRecord, options: StreamOptions) -> Dial: ...

    async def port_forward(self, view: PodView, ports: Sequence[int]) -> Dial:
        """`ports` is empty if the client names them in its streams."""
        ...
