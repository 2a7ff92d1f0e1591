"""Buffer sizes of asyncio's TLS connections.

Each connection has a buffer for what it reads, for as long as it lives. asyncio makes it 256 KiB, which a watch that waits for
events holds as well: 1500 of them took 460 MB of the client and as much of the server. A TLS record has at most 16 KiB.
"""

from __future__ import annotations

from asyncio import sslproto

READ_BYTES = 32 * 1024


def bound() -> None:
    """Have connections of this process that are made from now on read this many bytes at a time."""
    sslproto.SSLProtocol.max_size = READ_BYTES
