"""Netlink requests and the kernel's answers: refused, interrupted, cut off, lost."""

from __future__ import annotations

import errno
import socket
import struct

import pytest

from netproxy import netlink
from netproxy.podnet.rtnetlink import NEWLINK, NEWROUTE, RouteMonitor


class Kernel:
    """A netlink socket that answers with what it is given, one datagram or error after the other."""

    def __init__(self, *answers: bytes | OSError) -> None:
        self.answers, self.sent = list(answers), list[bytes]()

    def send(self, data: bytes) -> None:
        self.sent.append(data)

    def recv(self, size: int) -> bytes:
        answer = self.answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return answer


def message(kind: int, body: bytes, flags: int = 0) -> bytes:
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


def error(code: int) -> bytes:
    return message(netlink.ERROR, struct.pack("=i", -code) + bytes(16))


def done(flags: int = 0, code: int = 0) -> bytes:
    return message(netlink.DONE, struct.pack("=i", -code), flags)


def change(kernel: Kernel, count: int) -> list[OSError | None]:
    return netlink.change(kernel, [message(24, b"route")] * count)  # type: ignore[arg-type]


def dump(kernel: Kernel) -> list[netlink.Message]:
    return netlink.dump(kernel, 26, bytes(12))  # type: ignore[arg-type]


def test_each_request_of_a_batch_has_its_own_error() -> None:
    kernel = Kernel(error(0) + error(errno.EEXIST), error(errno.ENOENT))
    first, second, third = change(kernel, 3)
    assert first is None and len(kernel.sent) == 1
    assert isinstance(second, FileExistsError) and isinstance(third, FileNotFoundError)


def test_a_long_batch_is_sent_in_parts_whose_answers_fit_in_the_buffer() -> None:
    kernel = Kernel(error(0) * netlink.BATCH, error(0) * 6)
    assert change(kernel, netlink.BATCH + 6) == [None] * (netlink.BATCH + 6)
    assert [len(each) for each in kernel.sent] == [24 * netlink.BATCH, 24 * 6]
    assert change(Kernel(), 0) == []


def test_the_text_that_the_kernel_gives_is_part_of_the_error() -> None:
    text = b"Nexthop has invalid gateway\0"
    body = struct.pack("=i", -errno.ENETUNREACH) + bytes(16) + struct.pack("=HH", 4 + len(text), 1) + text
    (refused,) = change(Kernel(message(netlink.ERROR, body, netlink.ERROR_ATTRIBUTES)), 1)
    assert (
        refused is not None and refused.errno == errno.ENETUNREACH and "(Nexthop has invalid gateway)" in str(refused)
    )


@pytest.mark.parametrize("lost", [OSError(errno.ENOBUFS, "No buffer space available"), TimeoutError("timed out")])
def test_answers_that_are_lost_or_late_are_an_error_for_all(lost: OSError) -> None:
    with pytest.raises(OSError):
        change(Kernel(error(0), lost), 2)


def test_an_interrupted_dump_is_requested_again_a_few_times() -> None:
    route = message(NEWROUTE, b"1111")
    assert (
        dump(Kernel(route, done(netlink.INTERRUPTED), route + route, done()))
        == [netlink.Message(NEWROUTE, 0, b"1111")] * 2
    )
    marked = message(NEWROUTE, b"1111", netlink.INTERRUPTED)
    assert len(dump(Kernel(marked, done(), route, done()))) == 1
    kernel = Kernel(*[route, done(netlink.INTERRUPTED)] * netlink.DUMPS)
    with pytest.raises(BlockingIOError, match="changes while it is read"):
        dump(kernel)
    assert not kernel.answers and len(kernel.sent) == netlink.DUMPS


@pytest.mark.parametrize("last", [error(errno.EPERM), done(code=errno.ENOMEM)])
def test_a_dump_that_ends_with_an_error_is_no_dump(last: bytes) -> None:
    with pytest.raises(OSError):
        dump(Kernel(message(NEWROUTE, b"1111"), last))


@pytest.mark.parametrize("flags", [0, netlink.INTERRUPTED])
@pytest.mark.parametrize("cut", [1, 15, 17, 20])
def test_a_dump_that_is_cut_off_is_an_error(cut: int, flags: int) -> None:
    with pytest.raises(OSError, match="cut off"):
        dump(Kernel(message(NEWROUTE, bytes(12), flags) + message(NEWROUTE, bytes(12), flags)[:cut]))


def test_an_attribute_that_is_cut_off_is_an_error() -> None:
    body = struct.pack("=HHI", 8, 1 | 0x8000, 7) + struct.pack("=HH", 40, 2)
    read = netlink.attributes(body, 0)
    assert next(read) == (1, struct.pack("=I", 7))
    with pytest.raises(OSError, match="cut off"):
        next(read)
    assert list(netlink.attributes(b"", 0)) == list(netlink.attributes(b"\0\0", 0)) == []


@pytest.mark.parametrize(
    "answer",
    [
        OSError(errno.ENOBUFS, "No buffer space available"),
        message(NEWLINK, bytes(16))[:20],
        message(NEWLINK, bytes(16))[:9],
    ],
    ids=["overrun", "body cut off", "header cut off"],
)
def test_lost_notices_are_taken_for_a_change_of_everything(answer: bytes | OSError) -> None:
    changes: list[bool] = []
    monitor = RouteMonitor(lambda *, links: changes.append(links))
    monitor._socket = Kernel(answer)  # type: ignore[assignment]
    monitor._read()
    assert changes == [True]


def test_a_socket_without_the_newer_options_is_used_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    class Old:
        def __init__(self, *arguments: int) -> None:
            pass

        def settimeout(self, seconds: float) -> None:
            self.timeout = seconds

        def setsockopt(self, *arguments: int) -> None:
            raise OSError(errno.ENOPROTOOPT, "Protocol not available")

    monkeypatch.setattr(socket, "socket", Old)
    assert netlink.connect(netlink.ROUTE, strict=True).timeout == netlink.TIMEOUT  # type: ignore[attr-defined]
