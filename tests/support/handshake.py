"""A TLS handshake in memory between a server's settings and a client that is as old as one likes."""

from __future__ import annotations

import ssl


def shake(
    server: ssl.SSLContext, authority: bytes, suites: str = "", newest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
) -> tuple[str, str]:
    """Return version and cipher suite of a handshake with a client; raises ssl.SSLError where there is none."""
    client = ssl.create_default_context(cadata=authority.decode())
    client.maximum_version = newest
    if suites:
        client.set_ciphers(suites)
    return between(client, server)


def between(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str, str]:
    """Return version and cipher suite of a handshake; raises ssl.SSLError of the side that refuses."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [client.wrap_bio(down, up, server_hostname="localhost"), server.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    chosen = ends[0].cipher()
    assert chosen is not None
    return ends[0].version() or "", chosen[0]
