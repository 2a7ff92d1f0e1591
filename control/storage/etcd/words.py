"""gRPC's texts of failed connections to etcd in plain words: the address, and why it did not answer."""

from __future__ import annotations

import re
from urllib.parse import unquote

_ADDRESS = re.compile(r".*\bipv[46]:(\S+?:[0-9]+): (.*)", re.DOTALL)
_NAME = re.compile(r"errors resolving (\S+?):")
_REASONS = {
    "connection refused": "connection refused",
    "no route to host": "no route to host",
    "network is unreachable": "network is unreachable",
    "permission denied": "a firewall of this machine refuses connections",
    "unwrap failed": "it requires a client certificate, or does not accept this one",
    "certificate_required": "it requires a client certificate",
    "bad_certificate": "it does not accept the client certificate",
    "unknown_ca": "it does not accept the client certificate",
    "wrong_version_number": "it does not use TLS: write http://, or set up TLS in etcd",
    "http1.x": "it is not etcd",
    "expected settings frame": "it is not etcd, or uses TLS: then write https://",
    "socket closed": "it closed the connection: if it uses TLS, write https://",
    "connection reset": "it closed the connection: if it uses TLS, write https://",
    "timed out": "it did not answer in time",
    "timeout": "it did not answer in time",
}
"""Part of gRPC's text, in lower case, and what it means; the first one counts."""


def in_words(text: str) -> str:
    """Return gRPC's text about a connection in plain words, another text as it is."""
    if (name := _NAME.search(text)) is not None:
        return f"{name[1]}: the name cannot be resolved"
    if text.lower() == "deadline exceeded":
        return "it did not answer in time"
    if (found := _ADDRESS.match(text)) is None:
        return text
    address, why = unquote(found[1]), found[2]
    _, certificate, detail = why.rpartition("CERTIFICATE_VERIFY_FAILED: ")
    if certificate:
        return f"{address}: its certificate is not accepted: {detail.partition(':')[0].strip()}"
    lower = why.lower()
    return f"{address}: {next((words for part, words in _REASONS.items() if part in lower), why)}"
