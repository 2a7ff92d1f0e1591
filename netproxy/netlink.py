"""Small netlink and ioctl queries, for which no program is run."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable

_NETLINK_NETFILTER = 12
_NFT_MSG_GETGEN = (10 << 8) | 16
_NLM_F_REQUEST, _NLM_F_ACK = 1, 4
_RTM_DELNEIGH, _NDA_DST = 29, 1


def nf_tables_generation() -> bytes:
    """Return nf_tables' generation ID, which every transaction in this network namespace raises; b"" if there is none."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as netlink:
            netlink.settimeout(1)
            # struct nlmsghdr, struct nfgenmsg (family AF_UNSPEC, version 0, resource 0).
            header = struct.pack("=IHHII", 20, _NFT_MSG_GETGEN, _NLM_F_REQUEST, 1, 0)
            netlink.send(header + struct.pack("=BBH", 0, 0, 0))
            answer = netlink.recv(4096)
    except OSError:
        return b""
    # Past the two headers: attribute NFTA_GEN_ID (1), a big-endian 32-bit number, comes first.
    return answer[24:28]


def interface_index(name: str) -> int:
    """Return the number of a network device, 0 if there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0


def delete_neighbours(device: str, addresses: Iterable[str]) -> None:
    """Delete what the node knows of the MACs of addresses behind a device. Blocking, for microseconds; OSError if refused."""
    index = interface_index(device)
    if not index:
        return
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as netlink:
        netlink.settimeout(1)
        for each in map(ipaddress.ip_address, addresses):
            # struct ndmsg (family, interface, state, flags, type), then an attribute of the address.
            family = socket.AF_INET if each.version == 4 else socket.AF_INET6
            body = struct.pack("=BxxxiHBB", family, index, 0, 0, 0)
            body += struct.pack("=HH", 4 + len(each.packed), _NDA_DST) + each.packed
            netlink.send(struct.pack("=IHHII", 16 + len(body), _RTM_DELNEIGH, _NLM_F_REQUEST | _NLM_F_ACK, 1, 0) + body)
            (code,) = struct.unpack_from("=i", netlink.recv(4096), 16)
            if code and -code != errno.ENOENT:
                raise OSError(-code, os.strerror(-code))
