"""Headers `Connection` with many names, of clients and of backends: their cost, and the headers that they remove."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from netproxy.gateway.backend_connection import CALLS
from netproxy.gateway.errors import BackendError, Refused
from netproxy.gateway.header_changes import CONNECTION_NAMES, Header
from netproxy.gateway.limits import BACKENDS
from netproxy.gateway.request_headers import forwarded_headers
from netproxy.gateway.response import end_to_end
from netproxy.gateway.response_parser import ResponseParser


def connection(names: int, repeated: int) -> list[Header]:
    tokens = b",".join(b"%x" % number for number in range(names))
    return [(b"connection", tokens), *[(b"connection", b"a")] * repeated]


@pytest.mark.parametrize("change", [forwarded_headers, end_to_end])
@pytest.mark.parametrize(
    "headers", [connection(13_000, 120), connection(1, CONNECTION_NAMES), connection(CONNECTION_NAMES, 1)]
)
def test_too_many_names_are_refused_before_they_are_looked_at(
    change: Callable[[list[Header]], Any], headers: list[Header]
) -> None:
    began = time.process_time()
    with pytest.raises((BackendError, Refused), match="too many names in Connection") as refused:
        change(headers)
    assert time.process_time() - began < 0.002
    assert getattr(refused.value, "status", 431) == 431


@pytest.mark.parametrize("change", [forwarded_headers, end_to_end])
def test_what_several_headers_name_is_removed(change: Callable[[list[Header]], list[Header]]) -> None:
    headers = [
        (b"x-a", b"1"),
        (b"connection", b"close, X-A"),
        (b"x-b", b"2"),
        (b"x-c", b"3"),
        (b"connection", b"x-b\t,keep-alive"),
        (b"keep-alive", b"5"),
        *[(b"connection", b"close")] * 8,
    ]
    assert [name for name, _ in change(headers) if name.startswith(b"x-")] == [b"x-c"]
    assert all(name not in (b"connection", b"keep-alive") for name, _ in change(headers))


def test_a_large_head_costs_a_backend_more_than_a_small_one() -> None:
    costs = []
    for count, value in ((1, b"a"), (250, b"a"), (250, b"a" * 240)):
        parser = ResponseParser(BACKENDS, head_only=False, upgrade=False)
        parser.feed(b"HTTP/1.1 200 OK\r\n" + b"".join(b"x-%d: %s\r\n" % (each, value) for each in range(count)))
        parser.feed(b"content-length: 0\r\n\r\n")
        costs.append(parser.calls // CALLS)
    assert costs == sorted(costs) and costs[1] >= costs[0] + 30 and costs[2] >= costs[1] + 15
