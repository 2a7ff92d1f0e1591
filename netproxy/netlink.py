"""Netlink sockets: batches of changes with the kernel's answer to each, dumps, and reading of messages and attributes.

Requests are encoded by pyroute2 (rtnetlink_requests.py). What the kernel sends is read here: pyroute2 decodes every attribute
of a message into objects, which takes 54 µs for a route, 60 µs for a flow and 140 µs for a notice about a link, 20 to 200 times
as long; and its sockets open an event loop in each thread (docs/performance.md).

Everything here blocks until the kernel answers, as a rule for some 50 µs; dumps and whatever takes the kernel's lock of
links and routes belong in a thread. A socket stays in the network namespace of the thread that opened it.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import socket
import struct
from collections.abc import Callable, Container, Iterable, Iterator
from typing import NamedTuple, TypeVar

T = TypeVar("T")
ROUTE, NETFILTER = socket.NETLINK_ROUTE, 12
ERROR, DONE = 2, 3
REQUEST, ACK, INTERRUPTED, ERROR_ATTRIBUTES, DUMP = 1, 4, 0x10, 0x200, 0x300
"""Flags: NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP_INTR, NLM_F_ACK_TLVS, NLM_F_DUMP."""
TIMEOUT = 10.0
"""Seconds that the kernel may take for an answer: whoever deletes many devices keeps others from its lock meanwhile."""
DUMPS = 3
"""Dumps at most if each is interrupted by a change of the table."""
BATCH = 64
"""Requests that are sent at once: their answers have to fit in the socket's buffer."""
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _STRICT = 270, 10, 11, 12
_HEADER = struct.Struct("=IHHII")
_RECEIVED = 1 << 17
_NFT_MSG_GETGEN = (10 << 8) | 16


class Message(NamedTuple):
    """A message, without its header; `kind` is the header's type."""

    kind: int
    flags: int
    body: bytes


def connect(protocol: int, *, timeout: float = TIMEOUT, strict: bool = False) -> socket.socket:
    """Return a socket in the network namespace of the calling thread; `strict` has the kernel apply the filter of a dump."""
    netlink = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    netlink.settimeout(timeout)
    for option in (_CAP_ACK, _EXT_ACK, *([_STRICT] if strict else [])):
        try:
            netlink.setsockopt(_SOL_NETLINK, option, 1)
        except OSError:
            continue  # an older kernel: longer answers, no texts, and unfiltered dumps
    return netlink


def request(kind: int, flags: int, body: bytes) -> bytes:
    """Return a message with its header."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, 1, 0) + body


def messages(data: bytes) -> Iterator[Message]:
    """Yield the messages of a datagram; OSError if it is cut off."""
    start = 0
    while start < len(data):
        length, kind, flags = _HEADER.unpack_from(data, start)[:3] if len(data) - start >= _HEADER.size else (0, 0, 0)
        if length < _HEADER.size or start + length > len(data):
            raise OSError(errno.EBADMSG, "a netlink message is cut off")
        yield Message(kind, flags, data[start + _HEADER.size : start + length])
        start += (length + 3) & ~3


def attributes(body: bytes, start: int) -> Iterator[tuple[int, bytes]]:
    """Yield type and value of the attributes from `start` on, without the flags in the type."""
    while start + 4 <= len(body):
        length, kind = struct.unpack_from("=HH", body, start)
        if length < 4 or start + length > len(body):
            raise OSError(errno.EBADMSG, "a netlink attribute is cut off")
        yield kind & 0x3FFF, body[start + 4 : start + length]
        start += (length + 3) & ~3


def change(netlink: socket.socket, requests: Iterable[bytes]) -> list[OSError | None]:
    """Send requests that have the flag ACK; return the kernel's error for each, None for those that it has carried out.

    All are tried. OSError if the answers are lost (ENOBUFS) or do not come in time.
    """
    results: list[OSError | None] = []
    waiting = iter(requests)
    while batch := [each.ljust((len(each) + 3) & ~3, b"\0") for each in itertools.islice(waiting, BATCH)]:
        netlink.send(b"".join(batch))
        expected = len(results) + len(batch)
        while len(results) < expected:
            answers = messages(netlink.recv(_RECEIVED))
            results += [error_of(answer) for answer in answers if answer.kind == ERROR]
    return results


def apply(netlink: socket.socket, requests: Iterable[bytes], tolerated: Container[int] = ()) -> None:
    """Send all requests; raise the first error that is not tolerated, by its number."""
    errors = [error for error in change(netlink, requests) if error is not None and error.errno not in tolerated]
    if errors:
        raise errors[0]


async def in_thread(work: Callable[[socket.socket], T], protocol: int = ROUTE) -> T:
    """Return what `work` returns for a new socket of this namespace, in a thread."""
    netlink = connect(protocol, strict=True)

    def run() -> T:
        with netlink:  # closed here, for a cancelled task does not end the thread
            return work(netlink)

    return await asyncio.to_thread(run)


def error_of(answer: Message) -> OSError | None:
    """Return the error in an answer of type ERROR or DONE, with the kernel's own text where it gives one."""
    code = -struct.unpack_from("=i", answer.body)[0] if len(answer.body) >= 4 else errno.EBADMSG
    if not code:
        return None
    text = os.strerror(code)
    if answer.kind == ERROR and answer.flags & ERROR_ATTRIBUTES:
        # After the error number and the header of the request come attributes: NLMSGERR_ATTR_MSG is 1.
        texts = dict(attributes(answer.body, 4 + _HEADER.size))
        text += f" ({texts[1].rstrip(bytes(1)).decode(errors='replace')})" if 1 in texts else ""
    return OSError(code, text)


def dump(netlink: socket.socket, kind: int, body: bytes) -> list[Message]:
    """Return a complete dump. OSError if the kernel refuses it, or says each time that the table changed meanwhile."""
    for _ in range(DUMPS):
        complete, found = dump_once(netlink, kind, body)
        if complete:
            return found
    raise OSError(errno.EAGAIN, "the kernel's table changes while it is read")


def dump_once(
    netlink: socket.socket, kind: int, body: bytes, keep: Callable[[Message], bool] = lambda message: True
) -> tuple[bool, list[Message]]:
    """Return whether a dump is complete, and the messages in it that `keep` accepts."""
    netlink.send(request(kind, REQUEST | DUMP, body))
    complete, found = True, list[Message]()
    while True:
        for message in messages(netlink.recv(_RECEIVED)):
            complete &= not message.flags & INTERRUPTED
            if message.kind in (ERROR, DONE):
                if message.body and (error := error_of(message)):
                    raise error
                return complete, found
            if keep(message):
                found.append(message)


def nf_tables_generation() -> bytes:
    """Return nf_tables' generation ID, which every transaction in this network namespace raises; b"" if there is none."""
    try:
        with connect(NETFILTER, timeout=1) as netlink:
            # struct nfgenmsg: family AF_UNSPEC, version 0, resource 0.
            netlink.send(request(_NFT_MSG_GETGEN, REQUEST, bytes(4)))
            (answer, *_) = messages(netlink.recv(_RECEIVED))
            return dict(attributes(answer.body, 4)).get(1, b"") if answer.kind != ERROR else b""  # NFTA_GEN_ID
    except OSError:
        return b""


def interface_index(name: str) -> int:
    """Return the number of a network device, 0 if there is none."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return 0
