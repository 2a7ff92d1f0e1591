"""Backends that answer without a network: kubelets, containers, endpoints of Services and extension servers.

`open_connection` (asyncio's, and that of kube.client_handshakes) of a recorded request leads here, whatever address it names.
Each answers 200 with a text that names its address, so that the text in an answer tells whose data it is, and no protocol is
switched. A kubelet has its node's certificate.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Iterator
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from cryptography.hazmat.primitives import serialization

from kube import client_handshakes, pki
from tests.support.authorised.recording import CURRENT, Dial


def data_of(host: str) -> str:
    return f"zqbackend-{host}-"


@functools.cache
def _certificate_of(node: str) -> bytes:
    now = datetime.now(UTC)
    pair = pki.issue(pki.new_ca("test", now), f"system:node:{node}", ("system:nodes",), usages=(pki.SERVER,), now=now)
    return pair.certificate.public_bytes(serialization.Encoding.DER)


class _Writer:
    def __init__(self, dial: Dial, node: str) -> None:
        self._dial, self._node = dial, node

    def write(self, data: bytes) -> None:
        self._dial.sent += data

    async def drain(self) -> None: ...

    def close(self) -> None: ...

    async def wait_closed(self) -> None: ...

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name != "ssl_object" or not self._node:
            return default
        return SimpleNamespace(getpeercert=lambda binary_form: _certificate_of(self._node))


@contextlib.contextmanager
def dialled() -> Iterator[None]:
    """Answer the connections that recorded requests open."""
    plain, encrypted = asyncio.open_connection, client_handshakes.open_connection
    asyncio.open_connection, client_handshakes.open_connection = _recorded(plain), _recorded(encrypted)
    try:
        yield
    finally:
        asyncio.open_connection, client_handshakes.open_connection = plain, encrypted


def _recorded(real: Any) -> Any:
    async def open_connection(host: Any, port: Any, *rest: Any, **more: Any) -> Any:
        record = CURRENT.get()
        if record is None:
            return await real(host, port, *rest, **more)
        dial = Dial(str(host), int(port))
        record.dials.append(dial)
        reader, text = asyncio.StreamReader(), data_of(str(host)).encode()
        reader.feed_data(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n" % len(text) + text
        )
        reader.feed_eof()
        owner = str(rest[1]) if len(rest) > 1 else ""  # of the handshake: "node NAME", or a namespace
        return reader, _Writer(dial, owner.removeprefix("node ") if owner.startswith("node ") else "")

    return open_connection
