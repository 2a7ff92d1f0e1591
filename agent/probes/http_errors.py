"""Words HTTP errors as Go's client does: users know and search for those messages.

aiohttp and OpenSSL word the same errors otherwise, and some of them misleadingly: plain HTTP on a port that is asked for HTTPS
is an SSLError with errno 1, which the kernel calls "operation not permitted".
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import ssl
from urllib.parse import SplitResult

import aiohttp

_BROKEN = "net/http: HTTP/1.x transport connection broken: "
_ALERTS = {"protocol version": "protocol version not supported"}
"""Alerts that Go calls otherwise than OpenSSL."""
_BYTES = re.compile(r"""b'(?:[^'\\]|\\.)*'|b"(?:[^"\\]|\\.)*\"""")


def wording(error: Exception, url: SplitResult) -> str:
    """Return what stands after the URL in the message of a request to it that failed."""
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLError):
        return _of_tls(cause)
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientConnectionResetError):
        return "EOF"
    if isinstance(error, aiohttp.ClientConnectorError):
        if isinstance(cause, ConnectionResetError):  # asyncio's word for an end in the midst of a handshake
            return "EOF"
        if isinstance(cause, socket.gaierror):
            return f"dial tcp: lookup {url.hostname}: no such host"
        host = f"[{url.hostname}]" if ":" in (url.hostname or "") else url.hostname
        port = url.port or (443 if url.scheme == "https" else 80)
        return f"dial tcp {host}:{port}: connect: {reason(error.os_error)}"
    if isinstance(error, aiohttp.ClientOSError):
        return reason(error)
    if isinstance(error, aiohttp.NonHttpUrlClientError):
        return f'unsupported protocol scheme "{url.scheme}"'
    if isinstance(error, aiohttp.InvalidURL):
        return str(error.__cause__ or error.description or "invalid URL")
    if isinstance(error, aiohttp.ClientResponseError):
        return _BROKEN + _of_parser(error.message)
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


def _of_parser(message: str) -> str:
    found = _BYTES.search(message)
    line = ast.literal_eval(found.group()).decode(errors="replace").rstrip("\r\n") if found else ""
    if "Invalid status code" in message:
        return f"malformed HTTP status code {json.dumps(line.partition(' ')[2])}"
    if "status line" in message or not found:
        return f"malformed HTTP response {json.dumps(line)}"
    return f"malformed MIME header line: {line}"
