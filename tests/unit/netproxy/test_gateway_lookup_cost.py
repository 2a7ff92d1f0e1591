"""The cost of finding a request's rule, with routes that their author has made as expensive as the limits allow."""

from __future__ import annotations

import time
from collections.abc import Iterable

import pytest

from kube.gateway.model import Backend, Listener, Match, PathMatch, Route, Rule
from netproxy.gateway.errors import Refused
from netproxy.gateway.ingress_tables import IngressTables
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import split
from netproxy.gateway.routing import PortTable, compile_listeners

MOST_SECONDS = 0.008
"""A lookup takes 2 ms at most; it took 16 to 45 ms when it counted only comparisons."""


def prefix(path: str, method: str = "", headers: Iterable[str] = (), query: Iterable[str] = ()) -> Match:
    return Match(
        PathMatch("PathPrefix", path), method, tuple((n, "v") for n in headers), tuple((n, "v") for n in query)
    )


async def table(routes: Iterable[tuple[tuple[str, ...], Iterable[Match]]], *, single_label: bool = False) -> PortTable:
    """Return the routes, each with its hostnames, at one listener."""
    made = tuple(
        Route(
            "HTTPRoute",
            "evil",
            f"r{number}",
            "2026",
            hostnames,
            (Rule(tuple(matches), backends=(Backend(1, "evil", "s", 80),)),),
            single_label,
        )
        for number, (hostnames, matches) in enumerate(routes)
    )
    return (await compile_listeners([Listener("any", 80, False, "", (), made)], IngressTables(lambda: None)))[80]


def cost(port: PortTable, target: bytes, host: bytes, headers: Iterable[bytes] = ()) -> tuple[float, str]:
    """Return the seconds of the fastest of three lookups, and its result."""
    parsed, seconds, result = split(target, [host], requires_host=True).normal(), 9.0, ""
    pairs = [(name, b"w") for name in headers]
    for _ in range(3):
        request = RoutedRequest("GET", parsed, pairs)
        began = time.process_time()
        try:
            result = port.find(request, None).rule.name
        except Refused as refused:
            result = str(refused.status)
        seconds = min(seconds, time.process_time() - began)
    return seconds, result


def in_all_tiers(path: str) -> list[Match]:
    """Return matches of every number of headers and parameters, under names that requests do not have."""
    return [
        prefix(path, method, [f"n{group}-{i:02}" for i in range(headers)], [f"n{group}-{i:02}" for i in range(query)])
        for method in ("", "GET")
        for headers in range(17)
        for query in range(17)
        for group in range(5)
        if headers or query
    ]


async def test_conditions_on_names_that_a_request_does_not_have() -> None:
    port = await table([((), [*in_all_tiers("/"), *in_all_tiers("/a"), *in_all_tiers("/a/b")][:8192])])
    target = b"/a/b?" + b"&".join(b"q%d" % number for number in range(250))

    seconds, result = cost(port, target, b"a", [b"h%d" % number for number in range(120)])
    assert seconds < MOST_SECONDS and result == "500", seconds


async def test_many_groups_of_many_conditions_that_all_have_to_be_compared() -> None:
    names = [f"x-{number:02}" for number in range(24)]
    groups = [
        prefix("/", "", names[:1] + names[1 + start : 16 + start], [f"q{number}" for number in range(16)])
        for start in range(8)
    ]
    more = [prefix("/", "", [names[0], f"y-{number}"], [f"q{each}" for each in range(16)]) for number in range(2000)]
    port = await table([((), [*groups, *more])])
    target = b"/?" + b"&".join(b"q%d=w" % number for number in range(16))

    seconds, result = cost(port, target, b"a", [name.encode() for name in names])
    assert seconds < MOST_SECONDS and result == "500", seconds


async def test_a_long_prefix_under_each_wildcard_of_a_long_host() -> None:
    wildcards = [f"*{'.a' * number}" for number in range(1, 126)]
    port = await table([(tuple(wildcards), [prefix("/b" * 511 + "/c")])])

    seconds, result = cost(port, b"/b" * 600, b"a" + b".a" * 125)
    assert seconds < MOST_SECONDS and result == "404", seconds


async def test_many_prefixes_under_each_wildcard_of_a_long_host() -> None:
    wildcards = [f"*{'.a' * number}" for number in range(1, 126)]
    port = await table([(tuple(wildcards), [prefix("/c" + "/b" * number) for number in range(440, 505)])])

    seconds, result = cost(port, b"/b" * 600, b"a" + b".a" * 125)
    assert seconds < MOST_SECONDS and result == "500", seconds


@pytest.mark.parametrize("count", [1, 4000])
async def test_prefixes_as_long_as_targets_may_be(count: int) -> None:
    paths = [prefix("/c" + "/b" * number) for number in range(8000 - count, 8000)]
    port = await table([(("*.example.com", ""), paths)], single_label=True)

    for path in (b"/b" * 8000, b"/" * 16000, b"/" + b"b" * 16000):
        seconds, result = cost(port, path, b"a.example.com")
        assert seconds < MOST_SECONDS and result in ("404", "500"), seconds


async def test_a_request_with_an_ordinary_path_is_served_beside_expensive_routes() -> None:
    paths = [prefix("/c" + "/b" * number) for number in range(4000, 8000)]
    port = await table([(("",), [*paths, prefix("/shop")]), (("a.example.com",), [prefix("/shop/cart")])])

    assert cost(port, b"/shop/cart/1", b"a.example.com")[1].endswith("/r1")
    assert cost(port, b"/shop/list", b"a.example.com")[1].endswith("/r0")
