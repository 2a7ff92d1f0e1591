"""Routes of a gateway: the rule that a request gets, by hostnames, paths, methods, headers and parameters."""

from __future__ import annotations

import time

import pytest

from kube.gateway.model import Backend, Listener, Match, PathMatch, Route, Rule
from netproxy.gateway.errors import Refused
from netproxy.gateway.ingress_tables import IngressTables
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import split
from netproxy.gateway.routing import PortTable, compile_listeners

Pairs = tuple[tuple[str, str], ...]


def match(path: str = "/", *, exact: bool = False, method: str = "", headers: Pairs = (), query: Pairs = ()) -> Match:
    return Match(PathMatch("Exact" if exact else "PathPrefix", path), method, headers, query)


def route(
    name: str, *matches: Match, hostnames: tuple[str, ...] = (), created: str = "2026", single_label: bool = False
) -> Route:
    """Return a route whose rules have one match each, and name the Service after the route and the rule."""
    rules = tuple(Rule((each,), backends=(Backend(1, "n", f"{name}-{i}", 80),)) for i, each in enumerate(matches))
    return Route("HTTPRoute", "n", name, created, hostnames, rules, single_label)


async def table(*listeners: Listener) -> PortTable:
    return (await compile_listeners(listeners, IngressTables(lambda: None)))[80]


def listen(*routes: Route, hostname: str = "", tls: bool = False) -> Listener:
    return Listener(hostname or "any", 80, tls, hostname, (), routes)


def find(
    port: PortTable, target: str, host: str = "example.com", method: str = "GET", *headers: tuple[str, str]
) -> str:
    """Return the Service of a request, or the status that refuses it."""
    parsed = split(target.encode(), [host.encode()], requires_host=True).normal()
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    try:
        backend = port.find(RoutedRequest(method, parsed, pairs), None).rule.choose()
    except Refused as refused:
        return str(refused.status)
    return backend.service if backend is not None else "none"


async def test_prefixes_consist_of_whole_segments_and_the_longest_wins() -> None:
    port = await table(listen(route("r", match("/"), match("/a"), match("/a/b/"), match("/a/b", exact=True))))

    found = [find(port, path) for path in ("/", "/ab", "/a", "/a/", "/a/bc", "/a/b", "/a/b/", "/a/b/c", "/c?/a")]
    assert found == ["r-0", "r-0", "r-1", "r-1", "r-1", "r-3", "r-2", "r-2", "r-0"]


async def test_a_path_without_a_rule_is_404() -> None:
    port = await table(listen(route("r", match("/a"), match("/long/prefix/of/a/path"))))

    assert [find(port, path) for path in ("/", "/b", "/long/prefix/of", "/long/prefix/of/a/path/x")] == [
        "404",
        "404",
        "404",
        "r-1",
    ]


async def test_method_headers_and_parameters_decide_in_this_order() -> None:
    headers = (("x-a", "1"), ("x-b", "2"))
    port = await table(
        listen(
            route(
                "r",
                match(),
                match(query=(("q", "1"),)),
                match(headers=headers[:1]),
                match(headers=headers),
                match(method="POST"),
            )
        )
    )

    assert find(port, "/") == "r-0"
    assert find(port, "/?q=1") == "r-1" and find(port, "/?q=2") == "r-0" and find(port, "/?q=2&q=1") == "r-0"
    assert find(port, "/?q=1", "a", "GET", ("x-a", "1")) == "r-2"
    assert find(port, "/?q=1", "a", "GET", ("x-b", "2"), ("x-a", "1")) == "r-3"
    assert find(port, "/?q=1", "a", "GET", ("x-a", "2")) == "r-1"
    assert find(port, "/?q=1", "a", "POST", *headers) == "r-4"


async def test_the_oldest_route_wins_then_its_name_then_the_first_rule() -> None:
    port = await table(
        listen(
            route("young", match("/a"), created="2026-02"),
            route("b", match("/a"), match("/b"), created="2026-01"),
            route("a", match("/b"), match("/b"), created="2026-01"),
        )
    )

    assert (find(port, "/a"), find(port, "/b")) == ("b-0", "a-0")


async def test_more_specific_hostnames_come_first_and_the_rest_falls_through() -> None:
    port = await table(
        listen(
            route("any", match("/")),
            route("wide", match("/w"), hostnames=("*.com",)),
            route("wild", match("/"), hostnames=("*.example.com",)),
            route("exact", match("/e"), hostnames=("a.example.com",)),
        )
    )

    assert find(port, "/e", "A.example.com:8080") == "exact-0"
    assert find(port, "/x", "a.example.com.") == "wild-0"
    assert find(port, "/w", "b.a.example.com") == "wild-0"
    assert find(port, "/w", "example.com") == "wide-0" and find(port, "/x", "example.com") == "any-0"


async def test_a_host_belongs_to_the_most_specific_listener_alone() -> None:
    port = await table(
        listen(route("any", match("/"))),
        listen(route("wild", match("/w")), hostname="*.example.com"),
        listen(hostname="a.example.com"),
    )

    assert find(port, "/", "b.example.com") == "404" and find(port, "/w", "b.example.com") == "wild-0"
    assert find(port, "/", "a.example.com") == "404" and find(port, "/", "example.com") == "any-0"


async def test_a_wildcard_of_an_ingress_covers_one_label() -> None:
    port = await table(listen(route("r", match("/"), hostnames=("*.example.com",), single_label=True)))

    assert find(port, "/", "a.example.com") == "r-0" and find(port, "/", "b.a.example.com") == "404"


async def test_paths_of_routes_have_the_form_of_requests() -> None:
    port = await table(listen(route("r", match("/%61%2f"), match("/ä b", exact=True), match("/no%zz"))))

    assert find(port, "/a%2F/x") == "r-0" and find(port, "/%C3%A4%20b") == "r-1" and find(port, "/no%25zz") == "r-2"


async def test_thousands_of_rules_take_one_lookup_each() -> None:
    values = [match("/", headers=(("x-tenant", str(number)),)) for number in range(5000)]
    paths = [match(f"/p/{number}") for number in range(5000)]
    port = await table(listen(route("r", *values, *paths)))

    began = time.process_time()
    for number in range(0, 5000, 50):
        assert find(port, "/", "a", "GET", ("x-tenant", str(number))) == f"r-{number}"
        assert find(port, f"/p/{number}/x") == f"r-{5000 + number}"
    assert time.process_time() - began < 0.1


async def test_conditions_in_thousands_of_combinations_are_refused_instead_of_compared() -> None:
    names = [f"x-{number}" for number in range(14)]
    combinations = [
        tuple((name, "1") for bit, name in enumerate(names) if number >> bit & 1) for number in range(1, 1 << 13)
    ]
    port = await table(
        listen(route("other", match("/other")), route("r", *[match(headers=each) for each in combinations]))
    )
    headers = [(name, "2") for name in names]

    began = time.process_time()
    assert find(port, "/", "a", "GET", *headers) == "500"
    assert time.process_time() - began < 0.1
    assert find(port, "/other", "a", "GET", *headers) == "other-0"


@pytest.mark.parametrize("length", [1, 500])
async def test_long_paths_take_little_time(length: int) -> None:
    port = await table(listen(route("r", *[match("/a" * number) for number in range(1, length + 1)])))

    began = time.process_time()
    for _ in range(20):
        assert find(port, "/b" * 8000) == "404"
        assert find(port, "/a" * 8000) == f"r-{length - 1}"
    assert time.process_time() - began < 0.5
