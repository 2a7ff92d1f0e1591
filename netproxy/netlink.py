"""Small netlink and ioctl queries, for which no program is run."""

from __future__ import annotations

import socket
import struct

_NETLINK_NETFILTER = 12
_NFT_MSG_GETGEN = (10 << 8) | 16
_NLM_F_REQUEST = 1


def nf_tables_generation() -> bytes:
    """Return nf_tables' generation ID, which every transaction in this network namespace raises; b"" where there is none."""
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
    """Return the number of a network device, 0 where there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
