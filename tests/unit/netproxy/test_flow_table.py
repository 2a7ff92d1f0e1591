"""Requests to the kernel for its flows, and its answers."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from netproxy import flow_table, netlink

DONE = struct.pack("=IHHIIi", 20, 3, 2, 1, 0, 0)


class Kernel:
    """A netlink socket that answers with what it is given, one piece after the other."""

    def __init__(self, *answers: bytes) -> None:
        self.answers, self.sent, self.closed = list(answers), list[bytes](), False

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def recv(self, size: int) -> bytes:
        return self.answers.pop(0)


def delete(kernel: Kernel, *others: str) -> int:
    return flow_table.delete_between(kernel, {"10.244.2.5"}, others or {"10.244.1.2"})  # type: ignore[arg-type]


def error(code: int) -> bytes:
    return struct.pack("=IHHIIi", 20, 2, 0, 1, 0, -code)


def flow(body: bytes) -> bytes:
    return struct.pack("=IHHII", 20 + len(body), 0x100, 2, 1, 0) + struct.pack("=BBH", 2, 0, 0) + body


def attribute(kind: int, payload: bytes) -> bytes:
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def tuple_of(kind: int, source: str, to: str) -> bytes:
    addresses = attribute(1, socket.inet_aton(source)) + attribute(2, socket.inet_aton(to))
    return attribute(0x8000 | kind, attribute(0x8001, addresses) + attribute(0x8002, attribute(1, b"\x11")))


def between(source: str, to: str, identity: int) -> bytes:
    status = attribute(3, b"\0\0\0\1")
    return flow(tuple_of(1, source, to) + tuple_of(2, to, source) + status + attribute(12, identity.to_bytes(4, "big")))


@pytest.mark.parametrize(
    "answer",
    [error(errno.EPERM), flow(b""), flow(b"\0" * 40), flow(struct.pack("=HHHHHH", 60, 0x8001, 8, 0x8001, 8, 1))],
    ids=["refused", "no tuple", "unknown attributes", "no reply"],
)
def test_an_answer_that_cannot_be_read_is_an_error_of_the_system(answer: bytes) -> None:
    kernel = Kernel(answer)
    with pytest.raises(OSError):
        delete(kernel)
    assert kernel.closed and len(kernel.sent) == 1


def test_an_empty_table_and_a_family_without_addresses_cost_one_request_at_most() -> None:
    kernel = Kernel(DONE)
    assert delete(kernel) == 0 and len(kernel.sent) == 1 and kernel.closed
    kernel = Kernel()
    assert delete(kernel, "fd00::1") == 0 and not kernel.sent and kernel.closed


def test_a_flow_that_the_kernel_keeps_leaves_no_others() -> None:
    there, back = ("10.244.1.2", "10.244.2.5"), ("10.244.2.5", "10.244.1.2")
    listed = between(*there, 1) + between("10.244.1.2", "10.244.2.6", 2) + between(*back, 3) + between(*there, 4)
    kernel = Kernel(listed, DONE, error(errno.EBUSY), error(0) + error(errno.ENOENT))
    with pytest.raises(OSError, match="busy"):
        delete(kernel)
    assert [each.body[4:] for each in netlink.messages(kernel.sent[1])] == [
        tuple_of(1, *there) + attribute(12, b"\0\0\0\1"),
        tuple_of(1, *back) + attribute(12, b"\0\0\0\3"),
        tuple_of(1, *there) + attribute(12, b"\0\0\0\4"),
    ]
    kernel = Kernel(listed, DONE, error(0), error(0), error(errno.ENOENT))
    assert delete(kernel) == 2


INTERRUPTED = struct.pack("=IHHIIi", 20, 3, 2 | 0x10, 1, 0, 0)


def test_an_interrupted_list_is_requested_again_and_each_flow_is_deleted_once() -> None:
    first, second = between("10.244.1.2", "10.244.2.5", 1), between("10.244.2.5", "10.244.1.2", 2)
    kernel = Kernel(first, INTERRUPTED, first + second, DONE, error(0), error(0))
    assert delete(kernel) == 2 and len(kernel.sent) == 3 and kernel.sent[0] == kernel.sent[1]
    marked = first[:6] + struct.pack("=H", 2 | 0x10) + first[8:]
    kernel = Kernel(marked, DONE, second, DONE, error(0), error(0))
    assert delete(kernel) == 2, "a flow that was listed the first time is not forgotten"
    kernel = Kernel(*[first, INTERRUPTED] * flow_table.LISTS, error(0))
    assert delete(kernel) == 1 and not kernel.answers, "the number of requests has a limit"


def test_a_list_that_ends_with_an_error_is_an_error_of_the_system() -> None:
    kernel = Kernel(between("10.244.1.2", "10.244.2.5", 1), struct.pack("=IHHIIi", 20, 3, 2, 1, 0, -errno.ENOMEM))
    with pytest.raises(OSError, match="memory"):
        delete(kernel)
    assert kernel.closed
