"""Sockets that programs of this node listen on, read from /proc/net.

A load balancer at the node's own address would take the packets of a daemon that listens on the same port, sshd's or a
database's, so the proxy leaves such ports to the daemon. TCP sockets that listen and UDP sockets without a peer count; of the
TCP list these come first, so it is not read to its end, however many connections there are.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
import struct
import sys
from dataclasses import dataclass
from pathlib import Path

log = logging.getLogger(__name__)
PROC = Path("/proc/thread-self/net")
_LISTEN, _UNCONNECTED = "0A", "07"
_MOST = 65536
"""Lines that are read of each list at most."""


@dataclass(frozen=True, slots=True)
class Listeners:
    """Sockets as (protocol, address, port); a socket for all IPv6 addresses is taken for one of IPv4's too."""

    sockets: frozenset[tuple[str, str, int]] = frozenset()

    def ports_at(self, address: str) -> set[tuple[str, int]]:
        """Return the protocols and ports of an address whose packets would reach a program of the node."""
        reached = (address, "::") if ":" in address else (address, "0.0.0.0", "::")
        return {(protocol, port) for protocol, ip, port in self.sockets if ip in reached}


def read_listeners(directory: Path = PROC) -> Listeners:
    """Return the sockets of this network namespace that take packets; a list that cannot be read counts as empty."""
    found: set[tuple[str, str, int]] = set()
    for name, protocol, state in (
        ("tcp", "TCP", _LISTEN),
        ("tcp6", "TCP", _LISTEN),
        ("udp", "UDP", _UNCONNECTED),
        ("udp6", "UDP", _UNCONNECTED),
    ):
        try:
            with (directory / name).open() as lines:
                next(lines, None)
                for line, _ in zip(lines, range(_MOST), strict=False):
                    fields = line.split(maxsplit=4)
                    if fields[3] == state:
                        address, _, port = fields[1].rpartition(":")
                        found.add((protocol, _address(address), int(port, 16)))
                    elif protocol == "TCP":
                        break
        except FileNotFoundError:
            continue  # a kernel without IPv6
        except (OSError, ValueError, IndexError) as error:
            log.warning("sockets that listen on this node cannot be read from %s: %s", directory / name, error)
    return Listeners(frozenset(found))


def _address(text: str) -> str:
    """Read an address as the kernel prints it, in words of 32 bits by the machine's own order of bytes."""
    order = "<" if sys.byteorder == "little" else ">"
    words = [int(text[i : i + 8], 16) for i in range(0, len(text), 8)]
    packed = struct.pack(f"{order}{len(words)}I", *words)
    if len(packed) == 4:
        return socket.inet_ntop(socket.AF_INET, packed)
    address = ipaddress.IPv6Address(packed)
    return str(address.ipv4_mapped or address)
