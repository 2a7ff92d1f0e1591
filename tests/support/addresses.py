"""An address of the machine that tests run on, for what is refused or not dialled at loopback addresses."""

from __future__ import annotations

import socket


def own_address() -> str:
    """Return the address by which this machine goes elsewhere; fails where there is none but loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))  # sends nothing
        address: str = probe.getsockname()[0]
    assert not address.startswith("127."), "these tests need an address besides loopback, and a route"
    return address
