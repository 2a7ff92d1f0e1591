"""HTTP errors with the messages of Go's client, which users know and search for.

The kernel and OpenSSL have other messages for the same errors, some of them misleading: plain HTTP on a port for HTTPS is an
SSLError with errno 1, which the kernel calls "operation not permitted".
"""

from __future__ import annotations

import os
import socket
import ssl
from urllib.parse import SplitResult

from agent.http_get import ConnectError
from kube.urls import host_port

_ALERTS = {"protocol version": "protocol version not supported"}
"""Alerts that Go calls otherwise than OpenSSL."""


def wording(error: Exception, url: SplitResult) -> str:
    """Return what stands after the URL in the message of a request to it that failed."""
    if isinstance(error, ssl.SSLError):
        return _of_tls(error)
    if isinstance(error, ConnectError):
        if isinstance(error.error, socket.gaierror | UnicodeError):
            return f"dial tcp: lookup {url.hostname}: no such host"
        port = url.port or (443 if url.scheme == "https" else 80)
        return f"dial tcp {host_port(url.hostname or '', port)}: connect: {reason(error.error)}"
    if isinstance(error, OSError):
        return reason(error)
    return str(error)


def reason(error: OSError) -> str:
    """Write an error as the kernel's name for it, in lower case as Go does; asyncio's own wording is left out."""
    return os.strerror(error.errno).lower() if error.errno else str(error)


def _of_tls(error: ssl.SSLError) -> str:
    name = error.reason or ""
    if name in ("WRONG_VERSION_NUMBER", "HTTP_REQUEST"):
        return "http: server gave HTTP response to HTTPS client"
    if "_ALERT_" in name:
        alert = name.partition("_ALERT_")[2].lower().replace("_", " ")
        return "remote error: tls: " + _ALERTS.get(alert, alert)
    return "EOF" if "EOF" in name else f"tls: {name.lower().replace('_', ' ')}"
