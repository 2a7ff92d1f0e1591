"""Files of the machine's logs are closed, however a request for them ends."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path

import pytest
from starlette.requests import Request

from agent.server import log_query, system_logs
from agent.server.system_logs import SystemLogs


def request(path: str, query: str = "") -> Request:
    scope = {"type": "http", "method": "GET", "path": f"/logs/{path}", "query_string": query.encode(), "headers": []}
    return Request({**scope, "path_params": {"path": path}})


def is_log(descriptor: int) -> bool:
    """Return whether a descriptor is that of the log, still."""
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}").endswith("/syslog")
    except OSError:
        return False


class SlowOpening:
    """Opens a file and returns it only when `release` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.opened, self.release, self.descriptors = threading.Event(), threading.Event(), list[int]()
        self._open = system_logs.open_beneath
        for module in (system_logs, log_query):
            monkeypatch.setattr(module, "open_beneath", self.open)

    def open(self, root: Path, path: Path) -> int:
        self.descriptors.append(self._open(root, path))
        self.opened.set()
        assert self.release.wait(10)
        return self.descriptors[-1]

    async def closed(self) -> None:
        async with asyncio.timeout(10):
            while any(map(is_log, self.descriptors)):
                await asyncio.sleep(0.01)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "syslog").write_text("line\n")
    return tmp_path


async def test_a_request_that_ends_while_its_file_is_opened_leaves_no_descriptor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = SlowOpening(monkeypatch)
    reading = asyncio.create_task(SystemLogs(folder, queries=False).read(request("syslog")))
    assert await asyncio.to_thread(opening.opened.wait, 10)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    opening.release.set()
    await opening.closed()


async def test_a_query_that_ends_while_its_file_is_opened_leaves_no_descriptor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = SlowOpening(monkeypatch)
    opening.release.set()
    response = await SystemLogs(folder, queries=True).read(request("", "query=/syslog"))
    opening.release.clear()
    opening.opened.clear()

    async def pieces() -> list[bytes]:
        return [bytes(piece) async for piece in response.body_iterator]  # type: ignore[attr-defined]

    reading = asyncio.create_task(pieces())
    assert await asyncio.to_thread(opening.opened.wait, 10)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    opening.release.set()
    await opening.closed()


async def test_a_file_that_cannot_be_read_and_a_response_that_is_not_sent_leave_no_descriptor(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = SlowOpening(monkeypatch)
    opening.release.set()
    response = await SystemLogs(folder, queries=False).read(request("syslog"))
    assert response.status_code == 200
    del response
    await opening.closed()

    def broken(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "pread", broken)
    with pytest.raises(OSError, match="Input/output"):
        await SystemLogs(folder, queries=False).read(request("syslog"))
    await opening.closed()
