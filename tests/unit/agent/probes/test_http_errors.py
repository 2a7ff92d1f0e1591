"""Events of HTTP probes for servers with invalid responses."""

from __future__ import annotations

import errno
import socket
import ssl
from urllib.parse import urlsplit

import pytest

from agent.http_get import ConnectError
from agent.probes.http_errors import wording
from agent.probes.result import Target
from agent.threads import Owner
from kube.api import core_v1

URL = urlsplit("https://10.0.0.1/")


def connecting(error: OSError) -> str:
    return wording(ConnectError(error), URL)


def tls(reason: str) -> ssl.SSLError:
    error = ssl.SSLError(1, f"[SSL: {reason}]")
    error.reason = reason
    return error


def test_a_server_without_tls_is_not_reported_as_forbidding_the_connection() -> None:
    message = wording(tls("WRONG_VERSION_NUMBER"), URL)
    assert message == "http: server gave HTTP response to HTTPS client"
    assert wording(tls("TLSV1_ALERT_PROTOCOL_VERSION"), URL) == "remote error: tls: protocol version not supported"
    assert wording(tls("UNEXPECTED_EOF_WHILE_READING"), URL) == "EOF"


def test_a_failed_connection_is_reported_with_its_address() -> None:
    refused = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('10.0.0.1', 443)")
    assert connecting(refused) == "dial tcp 10.0.0.1:443: connect: connection refused"
    assert connecting(socket.gaierror(socket.EAI_NONAME, "")) == "dial tcp: lookup 10.0.0.1: no such host"
    six = ConnectError(refused)
    assert wording(six, urlsplit("http://[fd00::1]:8/")) == "dial tcp [fd00::1]:8: connect: connection refused"


def test_a_connection_that_ends_without_an_answer_is_an_eof() -> None:
    assert wording(EOFError("EOF"), URL) == "EOF"
    assert wording(ConnectionResetError(errno.ECONNRESET, "x"), URL) == "connection reset by peer"


def test_an_unknown_port_name_is_reported_with_upstreams_message() -> None:
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
