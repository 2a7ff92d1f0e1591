"""What the events of HTTP probes say of servers that answer otherwise than they should."""

from __future__ import annotations

import errno
import socket
import ssl
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from agent.probes.http_errors import wording
from agent.probes.result import Target
from agent.threads import Owner
from kube.api import core_v1

URL = urlsplit("https://10.0.0.1/")
NOBODY: Any = SimpleNamespace(ssl=True, host="10.0.0.1", port=443)


def connecting(error: OSError) -> str:
    return wording(aiohttp.ClientConnectorError(NOBODY, error), URL)


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def test_a_server_without_tls_is_not_said_to_forbid_the_connection() -> None:
    said = wording(aiohttp.ClientConnectorSSLError(NOBODY, tls("WRONG_VERSION_NUMBER")), URL)
    assert said == "http: server gave HTTP response to HTTPS client"
    assert connecting(tls("TLSV1_ALERT_PROTOCOL_VERSION")) == "remote error: tls: protocol version not supported"
    assert connecting(tls("UNEXPECTED_EOF_WHILE_READING")) == "EOF"
    assert connecting(ConnectionResetError(errno.ECONNRESET, "")) == "EOF"


def test_a_connection_that_is_not_made_is_told_with_its_address() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 443)")
    assert connecting(refused) == "dial tcp 10.0.0.1:443: connect: connection refused"
    assert connecting(socket.gaierror(socket.EAI_NONAME, "")) == "dial tcp: lookup 10.0.0.1: no such host"
    six = aiohttp.ClientConnectorError(NOBODY, refused)
    assert wording(six, urlsplit("http://[fd00::1]:8/")) == "dial tcp [fd00::1]:8: connect: connection refused"


def test_a_connection_that_ends_without_an_answer_is_an_eof() -> None:
    assert wording(aiohttp.ServerDisconnectedError(), URL) == "EOF"
    assert wording(aiohttp.ClientConnectionResetError("Cannot write to closing transport"), URL) == "EOF"
    assert wording(aiohttp.ClientOSError(errno.ECONNRESET, "x"), URL) == "connection reset by peer"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ("Bad status line:\n  Expected HTTP/, RTSP/ or ICE/:\n\n  b'hi\\n'\n    ^", 'malformed HTTP response "hi"'),
        ("Bad status line:\n  Invalid status code:\n\n  b'HTTP/1.1 abc'\n     ^", 'malformed HTTP status code "abc"'),
        ("Invalid header token:\n\n  b'no colon'\n      ^", "malformed MIME header line: no colon"),
    ],
)
def test_an_answer_that_is_not_http_is_quoted(message: str, said: str) -> None:
    error = aiohttp.ClientResponseError(NOBODY, (), status=400, message=message)
    assert wording(error, URL) == f"net/http: HTTP/1.x transport connection broken: {said}"


def test_a_port_name_that_no_port_has_is_told_as_upstream_tells_it() -> None:
    target = Target(core_v1.Container(name="main"), "id", "10.0.0.1", Owner("uid"))
    with pytest.raises(LookupError, match=r'^strconv\.Atoi: parsing "web": invalid syntax$'):
        target.port("web")
    assert target.port("80") == 80
    for port in (0, 65536, "0", "65536"):
        with pytest.raises(LookupError, match=f"^invalid port number: {port}$"):
            target.port(port)
    for text in ("\u00b2", "9" * 5000):
        with pytest.raises(LookupError):
            target.port(text)
