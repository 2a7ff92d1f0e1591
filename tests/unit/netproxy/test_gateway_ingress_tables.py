"""Routes of Ingresses, compiled by namespace: cost of each, and reuse of what is unchanged."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from kube.gateway import steps
from kube.gateway.model import HostOwners, Listener, Match, PathMatch, Route, Rule
from kube.step_limit import StepTooLong
from kube.step_shares import Shares
from netproxy.gateway import ingress_tables, path_table
from netproxy.gateway.ingress_tables import IngressTable, IngressTables
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import RequestTarget, written_path
from netproxy.gateway.routing import compile_listeners
from tests.support.iterations import Iterations

OWNERS = HostOwners({"a.com": "apps", "b.com": "infra"})


class Written:
    """Normalizes the paths of routes, and records which; `slow` is one for which a step is stopped."""

    def __init__(self) -> None:
        self.paths = Counter[str]()
        self.slow = ""

    def __call__(self, text: str) -> str:
        self.paths[text] += 1
        if text == self.slow:
            raise StepTooLong("a step was stopped")
        return written_path(text)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> Written:
    found = Written()
    monkeypatch.setattr(path_table, "written_path", found)
    return found


@pytest.fixture
def shares(monkeypatch: pytest.MonkeyPatch) -> Shares:
    found = Shares("gateway", 1.0, 0.25, steps.PAUSE, every_step=True)
    monkeypatch.setattr(ingress_tables, "SHARES", found)
    return found


def route(namespace: str, *paths: str, name: str = "web", host: str = "") -> Route:
    rules = tuple(Rule((Match(PathMatch("PathPrefix", path)),)) for path in paths)
    return Route("Ingress", namespace, name, "2026", (host,) if host else (), rules, single_label=True)


def find(table: IngressTable, host: str, path: str) -> str:
    """Return the namespace that serves a request, "" if none."""
    found = table.find(RoutedRequest("GET", RequestTarget(host, host, path, ""), []), "")
    return "" if found is None else found.rule.namespace


async def test_only_routes_that_have_changed_are_compiled_again(written: Written) -> None:
    tables = IngressTables(lambda: None)
    kept = [route("apps", "/a", host="a.com"), route("infra", "/any")]
    await tables.compile(OWNERS, [*kept, route("infra", "/b", host="b.com")])
    table = await tables.compile(OWNERS, [*kept, route("infra", "/c", host="b.com")])

    assert written.paths == {"/a": 1, "/any": 1, "/b": 1, "/c": 1}
    assert find(table, "a.com", "/a") == "apps" and find(table, "nobody.com", "/any/x") == "infra"
    assert find(table, "b.com", "/c") == "infra" and not find(table, "b.com", "/b")

    table = await tables.compile(OWNERS, [kept[0]])
    assert not find(table, "nobody.com", "/any") and not find(table, "b.com", "/c") and find(table, "a.com", "/a")


async def test_a_namespace_of_which_a_step_was_stopped_affects_no_other_one(written: Written, shares: Shares) -> None:
    """Neither when it is compiled first, after a restart, nor later, when it is served as before."""
    again = asyncio.Event()
    tables, written.slow = IngressTables(again.set), "/slow"
    slow, other = route("apps", "/slow", host="a.com"), route("infra", "/b", host="b.com")
    table = await tables.compile(OWNERS, [slow, other])
    assert find(table, "b.com", "/b") == "infra" and not find(table, "a.com", "/slow")

    fine = route("apps", "/fine", host="a.com")
    tables = IngressTables(again.set)
    await tables.compile(OWNERS, [fine, other])
    table = await tables.compile(OWNERS, [slow, other, route("infra", "/new", name="new", host="b.com")])
    assert find(table, "a.com", "/fine") == "apps" and find(table, "b.com", "/new") == "infra"


async def test_a_namespace_that_has_used_up_its_time_is_compiled_when_it_has_some_again(
    written: Written, shares: Shares
) -> None:
    again = asyncio.Event()
    tables = IngressTables(again.set)
    shares.charge("apps", 1.02, stopped=False)
    routes = [route("apps", "/a", host="a.com"), route("infra", "/b", host="b.com")]
    table = await tables.compile(OWNERS, routes)
    assert find(table, "b.com", "/b") == "infra" and not find(table, "a.com", "/a") and not written.paths["/a"]

    async with asyncio.timeout(5):
        await again.wait()
    # Its Gateways, to which others attach routes, may take time without an end.
    shares.charge("apps", 30.0, stopped=False)
    assert find(await tables.compile(OWNERS, routes), "a.com", "/a") == "apps"


@pytest.mark.parametrize("kind", ["Ingress", "path", "headers", "query"])
async def test_long_texts_are_compiled_in_many_iterations_of_the_loop(
    kind: str, shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(steps, "SECONDS", 60.0)
    long = [("x", f"{number:4} " * 200) for number in range(256)]
    if kind == "Ingress":
        found = [Listener("http", 80, False, "", (), (route("apps", *(f"/{text}" for _, text in long)),), OWNERS)]
    else:
        path = [PathMatch("PathPrefix", f"/{text}" if kind == "path" else "/") for _, text in long]
        matches = tuple(
            Match(each, headers=(pair,) if kind == "headers" else (), query=(pair,) if kind == "query" else ())
            for each, pair in zip(path, long, strict=True)
        )
        found = [Listener("http", 80, False, "", (), (Route("HTTPRoute", "n", "r", "2026", (), (Rule(matches),)),))]
    with Iterations() as iterations:
        await compile_listeners(found, IngressTables(lambda: None))
    assert iterations.number > 25


async def test_a_path_is_normalized_once_for_all_hostnames_of_its_route(written: Written) -> None:
    matches = tuple(Match(PathMatch("PathPrefix", f"/{number}")) for number in range(4))
    found = Route("HTTPRoute", "n", "r", "2026", tuple(f"h{number}.com" for number in range(16)), (Rule(matches),))
    ports = await compile_listeners([Listener("http", 80, False, "", (), (found,))], IngressTables(lambda: None))
    assert set(written.paths.values()) == {1} and len(written.paths) == 4
    target = RequestTarget("h7.com", "h7.com", "/3", "")
    assert ports[80].find(RoutedRequest("GET", target, []), None).prefix == "/3"
