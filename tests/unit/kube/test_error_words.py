"""Errors of connections in words that have no name of a class."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import aiohttp
import pytest

from kube import error_words
from wherry import health, os_errors
from wherry.settings import Settings


def refused(number: int) -> aiohttp.ClientConnectorError:
    key: Any = type("Key", (), {"host": "127.0.0.1", "port": 1, "is_ssl": False, "ssl": True})()
    return aiohttp.ClientConnectorError(key, OSError(number, "Connect call failed ('127.0.0.1', 1)"))


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), "timed out"),
        (ConnectionResetError(), "connection reset by peer"),
        (BrokenPipeError(), "broken pipe"),
        (asyncio.IncompleteReadError(b"", 4), "0 bytes read on a total of 4 expected bytes"),
        (refused(errno.ECONNREFUSED), "connection refused"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (RuntimeError(), "runtime"),
    ],
)
def test_an_error_has_words(error: Exception, text: str) -> None:
    assert error_words.words(error) == text


def test_the_systems_reason_of_a_wrapped_error_is_found() -> None:
    outer = ValueError("('Connection aborted.', FileNotFoundError(2, 'No such file or directory'))")
    outer.__context__ = ConnectionError("('Connection aborted.')")
    outer.__context__.__context__ = FileNotFoundError(errno.ENOENT, "No such file or directory")
    assert error_words.cause(outer) == "no such file or directory"
    assert error_words.cause(ValueError("bad answer")) == "bad answer"


def test_errors_of_the_system_without_a_number_have_words() -> None:
    assert os_errors.sentence(TimeoutError()) == "timed out"
    assert os_errors.sentence(ConnectionResetError()) == "connection reset by peer"


async def test_a_daemon_that_does_not_listen_is_reported_in_the_systems_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise refused(errno.ECONNREFUSED)

    monkeypatch.setattr(aiohttp.ClientSession, "get", fail)
    found = await health.problem(Settings(), "agent")
    assert found == "http://127.0.0.1:10248/healthz does not answer: connection refused"
