"""Certificates that signers write into the status of requests: PEM blocks, found as Go's encoding/pem finds them."""

from __future__ import annotations

import base64
from collections.abc import Iterator

_BEGIN, _END, _DASHES = b"\n-----BEGIN ", b"\n-----END ", b"-----"


def certificate_problem(encoded: str) -> str:
    """Return what is wrong with an issued certificate, "" if nothing is."""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        data = b""
    found = False
    for kind, body in _blocks(data):
        if kind != b"CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind.decode(errors="replace")}"'
        if b":" in body:
            return "no PEM block headers are permitted"
        found = True
    return "" if found or not encoded else "must contain at least one CERTIFICATE PEM block"


def _blocks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Give the type and the content of each block, in time in proportion to the data: the next end is searched for once."""
    data = b"\n" + data
    end = 0
    position = data.find(_BEGIN)
    while position >= 0:
        line = data.find(b"\n", position + len(_BEGIN))
        if line < 0:
            return
        kind = data[position + len(_BEGIN) : line].rstrip(b" \t\r")
        if end < line:
            end = data.find(_END, line)
            if end < 0:
                return
        if kind.endswith(_DASHES) and data.startswith(kind, end + len(_END)):
            yield kind.removesuffix(_DASHES), data[line:end]
            line = end + len(_END) + len(kind)
        position = data.find(_BEGIN, line)
