"""Unit tests neither start processes nor open sockets to the outside: an attempt fails with the reason.

Netlink requests fail as they do without the right to make them: flows and routes of this machine are not changed.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
from typing import Any

import pytest


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("a unit test may not start a process or open a network connection")

    real_connect = socket.socket.connect

    def connect(self: socket.socket, address: Any) -> None:
        if self.family != socket.AF_UNIX:
            refuse()
        real_connect(self, address)

    real_send = socket.socket.send

    def send(self: socket.socket, *arguments: Any) -> int:
        if self.family == socket.AF_NETLINK:
            raise OSError(errno.EPERM, "a unit test may not send netlink requests")
        return real_send(self, *arguments)

    monkeypatch.setattr(socket.socket, "connect", connect)
    monkeypatch.setattr(socket.socket, "send", send)
    monkeypatch.setattr(subprocess.Popen, "__init__", refuse)
    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
