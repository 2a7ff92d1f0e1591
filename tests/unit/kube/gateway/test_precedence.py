"""Order of matches at a listener."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kube.gateway.model import Match, PathMatch, Route, Rule
from kube.gateway.precedence import ordered


def of(
    name: str, *matches: Match, hostnames: tuple[str, ...] = (), created: str = "2026", namespace: str = "a"
) -> Route:
    return Route("HTTPRoute", namespace, name, created, hostnames, (Rule(matches),))


def names(*routes: Route) -> list[str]:
    return [each.route.name for each in ordered(routes)]


PREFIX, LONGER, EXACT = Match(), Match(PathMatch("PathPrefix", "/aa")), Match(PathMatch("Exact", "/"))


def test_the_more_specific_match_comes_first() -> None:
    expected = [
        of("exact", EXACT),
        of("longer", LONGER),
        of("method", Match(method="GET")),
        of("two-headers", Match(headers=(("a", "1"), ("b", "2")))),
        of("header", Match(headers=(("a", "1"),), query=(("a", "1"), ("b", "2")))),
        of("query", Match(query=(("a", "1"),))),
        of("any", PREFIX),
    ]
    assert names(*reversed(expected)) == [each.name for each in expected]


def test_the_more_specific_hostname_comes_before_the_more_specific_path() -> None:
    routes = [
        of("any", EXACT),
        of("wildcard", EXACT, hostnames=("*.a.com",)),
        of("longer-wildcard", PREFIX, hostnames=("*.b.a.com",)),
        of("name", PREFIX, hostnames=("b.com",)),
    ]
    assert names(*routes) == ["name", "longer-wildcard", "wildcard", "any"]


def test_the_older_route_comes_first_then_the_name() -> None:
    routes = [
        of("c", PREFIX, created="2026-01-02T00:00:00Z"),
        of("b", PREFIX, created="2026-01-01T00:00:00Z", namespace="b"),
        of("a", PREFIX, created="2026-01-01T00:00:00Z", namespace="b"),
        of("z", PREFIX, created="2026-01-01T00:00:00Z"),
    ]
    assert names(*routes) == ["z", "a", "b", "c"]


def test_the_earlier_rule_of_a_route_comes_first() -> None:
    first, second = Rule((PREFIX,), request_seconds=1), Rule((PREFIX,), request_seconds=2)
    found = ordered([Route("HTTPRoute", "a", "b", "", ("a.com", "b.com"), (first, second))])
    assert [each.rule for each in found if each.hostname == "a.com"] == [first, second]


MATCH = st.builds(
    Match,
    st.builds(PathMatch, st.sampled_from(["Exact", "PathPrefix"]), st.sampled_from(["/", "/a", "/a/", "/a/b"])),
    st.sampled_from(["", "GET"]),
    st.sampled_from([(), (("a", "1"),)]),
    st.sampled_from([(), (("q", "1"),)]),
)
ROUTE = st.builds(
    lambda name, matches, hosts: of(name, *matches, hostnames=hosts),
    st.sampled_from(["x", "y", "z"]),
    st.lists(MATCH, min_size=1, max_size=3),
    st.sampled_from([(), ("a.com",), ("*.a.com", "b.a.com")]),
)


@given(st.lists(ROUTE, unique_by=lambda route: route.name), st.randoms())
def test_the_order_does_not_depend_on_the_order_of_the_routes(routes: list[Route], random: object) -> None:
    shuffled = list(routes)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert ordered(shuffled) == ordered(routes)
