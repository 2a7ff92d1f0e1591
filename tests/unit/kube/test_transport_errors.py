"""Messages of connections that cannot be made: in the words of the system, without objects of Python's."""

from __future__ import annotations

import errno
import socket
import ssl
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest

from kube.transport import _unreachable

PLACE: Any = SimpleNamespace(host="192.0.2.1", port=6443, ssl=ssl.create_default_context(), is_ssl=True)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(errno.ECONNREFUSED, "Connect call failed ('192.0.2.1', 6443)"), "connection refused"),
        (OSError(errno.EHOSTUNREACH, "Connect call failed"), "no route to host"),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ssl.SSLError(1, "[SSL] record layer failure"), "[SSL] record layer failure"),
        (OSError("Multiple exceptions: a, b"), "Multiple exceptions: a, b"),
    ],
)
def test_a_server_that_cannot_be_reached_has_the_reason_of_the_system(error: OSError, words: str) -> None:
    found = _unreachable("https://192.0.2.1:6443", aiohttp.ClientConnectorError(PLACE, error))
    assert found.message == f"cannot reach the API server at https://192.0.2.1:6443: {words}"
