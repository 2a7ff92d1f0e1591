"""Deletes flows between two groups of addresses by ctnetlink, for which no program is run.

The kernel lists the flows of an IP family once, whatever the number of addresses. Each match is deleted by its tuple and ID
as the kernel gave them, so flows of every protocol are, and none that took its place.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Collection, Iterable, Iterator

_NETFILTER = 12
_NEW, _GET, _DELETE = (1 << 8), (1 << 8) | 1, (1 << 8) | 2
"""Messages of NFNL_SUBSYS_CTNETLINK."""
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _INTERRUPTED, _DUMP = 1, 4, 0x10, 0x300
_ORIGINAL, _REPLY, _ID, _ZONE = 1, 2, 12, 18
"""Attributes of a flow: CTA_TUPLE_ORIG, CTA_TUPLE_REPLY, CTA_ID, CTA_ZONE."""
_TUPLE_IP, _SOURCE = 1, {4: 1, 6: 3}
"""Attributes of a tuple: CTA_TUPLE_IP, and in it CTA_IP_V4_SRC or CTA_IP_V6_SRC."""
_FAMILIES = {4: (socket.AF_INET, 4), 6: (socket.AF_INET6, 16)}
"""Number of an IP family, and bytes of an address."""
TIMEOUT = 30.0
"""Seconds that the kernel may take for an answer."""
LISTS = 3
"""Lists of a family's flows at most, where the kernel says that one may not be complete."""
_MESSAGE, _TUPLE = struct.Struct("=IHHII"), struct.Struct("=HHHHHH")
_FIRST = 20
"""Bytes of struct nlmsghdr and struct nfgenmsg, after which attributes begin."""


def connect() -> socket.socket:
    """Return a socket in the network namespace of the calling thread."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETFILTER)
    netlink.settimeout(TIMEOUT)
    return netlink


def delete_between(netlink: socket.socket, ends: Collection[str], others: Collection[str]) -> int:
    """Delete the flows between any of `ends` and any of `others`, and close the socket; return how many there were.

    Blocking: about 3 µs a flow of the table. OSError if the kernel refuses one (EBUSY for a flow that hardware forwards); all
    others are deleted.
    """
    count, refused = 0, None
    with netlink:
        for version in _FAMILIES:
            left, right = _packed(ends, version), _packed(others, version)
            found = _list(netlink, version, left, right) if left and right else []
            for flow in found:
                try:
                    count += _delete(netlink, _FAMILIES[version][0], flow)
                except TimeoutError:
                    raise
                except OSError as error:
                    refused = error
    if refused is not None:
        raise refused
    return count


def _packed(addresses: Collection[str], version: int) -> frozenset[bytes]:
    parsed = map(ipaddress.ip_address, addresses)
    return frozenset(each.packed for each in parsed if each.version == version)


def _list(netlink: socket.socket, version: int, left: Collection[bytes], right: Collection[bytes]) -> Iterable[bytes]:
    found: dict[tuple[bytes, ...], bytes] = {}
    for _ in range(LISTS):
        complete, flows = _list_once(netlink, version, left, right)
        found |= {_identity(flow): flow for flow in flows}
        if complete:
            break
    return found.values()


def _list_once(
    netlink: socket.socket, version: int, left: Collection[bytes], right: Collection[bytes]
) -> tuple[bool, list[bytes]]:
    """Return whether the list is complete, and what is in it."""
    family = struct.pack("=BBH", _FAMILIES[version][0], 0, 0)
    netlink.send(_MESSAGE.pack(_FIRST, _GET, _REQUEST | _DUMP, 1, 0) + family)
    complete, found = True, list[bytes]()
    while True:
        data = netlink.recv(1 << 17)
        for kind, flags, message in _messages(data):
            complete &= not flags & _INTERRUPTED
            if kind == _NEW and _is_between(message, version, left, right):
                found.append(message)
            elif kind == _ERROR:
                _check(message)
            elif kind == _DONE:
                if len(message) > _MESSAGE.size:
                    _check(message)
                return complete, found


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield the kind of each message, its flags, and the message with its header."""
    start = 0
    while start + _MESSAGE.size <= len(data):
        length, kind, flags, _, _ = _MESSAGE.unpack_from(data, start)
        if length < _MESSAGE.size:
            return
        yield kind, flags, data[start : start + length]
        start += (length + 3) & ~3


def _is_between(message: bytes, version: int, left: Collection[bytes], right: Collection[bytes]) -> bool:
    """Return whether one end of a flow is in each group. What leads to a Service's address is answered from the endpoint's."""
    try:
        source, size = _source(message, _FIRST, _ORIGINAL, version)
        answering, _ = _source(message, _FIRST + size, _REPLY, version)
    except struct.error as error:
        raise OSError(errno.EBADMSG, "the kernel's list of flows is cut off") from error
    return (source in left and answering in right) or (source in right and answering in left)


def _source(message: bytes, start: int, kind: int, version: int) -> tuple[bytes, int]:
    """Return the source address of the tuple that starts there, and the size of the tuple.

    The kernel writes the original tuple first, then the reply's; in each the addresses first, and of these the source.
    """
    size, has, _, inner, _, innermost = _TUPLE.unpack_from(message, start)
    if (has & 0x3FFF, inner & 0x3FFF, innermost & 0x3FFF) != (kind, _TUPLE_IP, _SOURCE[version]):
        raise OSError(errno.EBADMSG, "the kernel lists flows in an unknown form")
    return message[start + 12 : start + 12 + _FAMILIES[version][1]], (size + 3) & ~3


def _delete(netlink: socket.socket, family: int, flow: bytes) -> bool:
    """Delete a flow as the kernel listed it; return whether it was still there."""
    body = struct.pack("=BBH", family, 0, 0) + b"".join(_identity(flow))
    netlink.send(_MESSAGE.pack(_MESSAGE.size + len(body), _DELETE, _REQUEST | _ACK, 2, 0) + body)
    return _check(netlink.recv(1 << 16))


def _identity(flow: bytes) -> tuple[bytes, ...]:
    return tuple(each for kind, each in _attributes(flow) if kind in (_ORIGINAL, _ID, _ZONE))


def _attributes(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the kind of each attribute, and the attribute with its header and padding."""
    start = _FIRST
    while start + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, start)
        if length < 4:
            return
        end = start + ((length + 3) & ~3)
        yield kind & 0x3FFF, message[start:end].ljust(end - start, b"\0")
        start = end


def _check(message: bytes) -> bool:
    """Raise the error of an answer; return False if what it was about is not there."""
    (code,) = struct.unpack_from("=i", message, _MESSAGE.size)
    if code and -code != errno.ENOENT:
        raise OSError(-code, os.strerror(-code))
    return not code
