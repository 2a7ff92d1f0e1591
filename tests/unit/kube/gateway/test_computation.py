"""Computation of Gateways: attachment of routes, limits, and statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.gateway import computation, statuses
from kube.gateway.computation import Result
from kube.gateway.match_limit import MOST_MATCHES
from kube.gateway.objects import Gateway, GatewayClass, HTTPRoute
from kube.gateway.steps import SECONDS, completed
from kube.gateway.verdict import failed
from kube.object_names import key_of
from tests.support.cpu_signals import burn
from tests.support.gateway_results import compute, convert_route
from tests.support.gateways import FakeView, from_all, gateway, listener, made, parent, route, rule

NOW, LATER = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


def computed(found: Gateway, *routes: HTTPRoute, view: FakeView | None = None) -> Result:
    view = view or FakeView()
    return compute(found, [(each, convert_route(each, view)) for each in routes], view)


def reason(found: Result, route: HTTPRoute, position: int = 0) -> str:
    return found.routes[key_of(route)].attachments[position].accepted.reason


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ({}, "Accepted"),
        ({"sectionName": "http"}, "Accepted"),
        ({"port": 80}, "Accepted"),
        ({"sectionName": "http", "port": 80}, "Accepted"),
        ({"sectionName": "other"}, "NoMatchingParent"),
        ({"port": 81}, "NoMatchingParent"),
        ({"sectionName": "https", "port": 80}, "NoMatchingParent"),
        ({"sectionName": "https"}, "NotAllowedByListeners"),
        ({"sectionName": "named"}, "NoMatchingListenerHostname"),
    ],
)
def test_a_route_is_attached_to_the_listeners_that_it_selects(reference: dict[str, Any], expected: str) -> None:
    listeners = [
        listener(),
        listener("https", 443, "HTTPS", allowedRoutes={"namespaces": {"from": "None"}}),
        listener("named", 8080, hostname="b.com"),
    ]
    found = route(hostnames=["a.com"], parents=[parent(**reference)])
    result = computed(gateway(*listeners), found)
    assert reason(result, found) == expected
    assert result.attached == ((1, 0, 0) if expected == "Accepted" else (0, 0, 0))


def test_a_route_of_another_namespace_needs_a_listener_that_allows_it() -> None:
    found = route(namespace="apps", parents=[parent(namespace="infra")])
    assert reason(computed(gateway(), found), found) == "NotAllowedByListeners"
    result = computed(gateway(listener(allowedRoutes=from_all())), found)
    assert reason(result, found) == "Accepted"
    assert [each.namespace for each in result.served[0].routes] == ["apps"]


def test_routes_count_at_listeners_that_are_not_served() -> None:
    listeners = [listener("tls", 443, "HTTPS", tls={"certificateRefs": [{"name": "absent"}]})]
    found = route(rule({"name": "absent", "port": 1}))
    result = computed(gateway(*listeners), found)
    assert result.attached == (1,) and result.served == () and result.accepted.ok
    assert reason(result, found) == "Accepted"


def test_references_to_other_kinds_and_gateways_do_not_matter() -> None:
    parents = [parent(kind="Service", group=""), parent("other"), parent(namespace="apps"), parent()]
    found = route(parents=parents)
    assert list(computed(gateway(), found).routes[key_of(found)].attachments) == [3]


def test_a_route_with_two_references_is_served_once_by_a_listener() -> None:
    found = route(parents=[parent(), parent(sectionName="http")])
    result = computed(gateway(), found)
    assert result.attached == (1,) and len(result.served[0].routes) == 1


@pytest.mark.parametrize(
    ("spec", "ok", "expected"),
    [
        ({}, True, "Accepted"),
        ({"addresses": [{"type": "IPAddress"}]}, True, "Accepted"),
        ({"addresses": [{"value": "192.0.2.1"}]}, False, "UnsupportedAddress"),
        ({"infrastructure": {"labels": {"a": "b"}}}, True, "Accepted"),
        (
            {"infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "a"}}},
            False,
            "InvalidParameters",
        ),
        ({"listeners": [listener(), listener("a", 81, "TCP")]}, True, "ListenersNotValid"),
        ({"listeners": [listener(protocol="TCP")]}, False, "ListenersNotValid"),
    ],
)
def test_a_gateway_is_accepted_with_at_least_one_valid_listener(spec: dict[str, Any], ok: bool, expected: str) -> None:
    found = made(Gateway, "web", "infra", {"gatewayClassName": "wherry", "listeners": [listener()], **spec})
    result = computed(found, route())
    assert (result.accepted.ok, result.accepted.reason) == (ok, expected)
    assert bool(result.served) is ok


def test_routes_beyond_the_limit_of_their_namespace_are_not_accepted() -> None:
    hosts = [f"h{number}.com" for number in range(16)]
    rules = [rule(matches=[{}] * 8) for _ in range(16)]
    most = MOST_MATCHES // (16 * 128)
    view = FakeView(namespaces={"more": {}})
    routes = [
        route(*rules, name=f"r{n:02}", namespace="apps", hostnames=hosts, parents=[parent(namespace="infra")])
        for n in range(most + 2)
    ]
    other = route(namespace="more", parents=[parent(namespace="infra")])
    result = computed(gateway(listener(allowedRoutes=from_all())), *reversed(routes), other, view=view)
    assert [reason(result, each) for each in routes] == ["Accepted"] * most + ["TooManyMatches"] * 2
    assert reason(result, other) == "Accepted" and result.attached == (most + 1,)


@given(st.permutations(range(6)))
def test_the_result_does_not_depend_on_the_order_of_the_routes(order: list[int]) -> None:
    routes = [route(name=f"r{number}", created=f"2026-01-0{1 + number % 3}T00:00:00Z") for number in range(6)]
    expected = computed(gateway(), *routes)
    found = computed(gateway(), *(routes[number] for number in order))
    assert found.served == expected.served and found.routes == expected.routes


# -- statuses ---------------------------------------------------------------------------------------------------------
def conditions(found: Any) -> dict[str, tuple[str, str]]:
    return {each.type: (each.status, each.reason) for each in found.conditions}


def test_a_status_has_all_conditions_and_is_not_written_twice() -> None:
    listeners = [listener("a", 443, "HTTPS", hostname="a.com"), listener("b", 443, "HTTPS"), listener("c", 1, "TCP")]
    found = gateway(*listeners)
    result = computed(found, route())
    status = statuses.gateway_status(found, result, ["192.0.2.1"], None, NOW)
    assert status is not None
    assert conditions(status) == {"Accepted": ("True", "ListenersNotValid"), "Programmed": ("True", "Programmed")}
    assert status.addresses == [{"type": "IPAddress", "value": "192.0.2.1"}]
    assert conditions(status.listeners[0]) == {
        "Accepted": ("True", "Accepted"),
        "Conflicted": ("False", "NoConflicts"),
        "Programmed": ("True", "Programmed"),
        "ResolvedRefs": ("True", "ResolvedRefs"),
        "OverlappingTLSConfig": ("True", "OverlappingHostnames"),
    }
    assert conditions(status.listeners[2])["Accepted"] == ("False", "UnsupportedProtocol")
    assert [each.supported_kinds for each in status.listeners][2] == []
    found.status = status
    assert statuses.gateway_status(found, result, ["192.0.2.1"], None, LATER) is None
    body = statuses.gateway_body(status)
    assert body["listeners"][2]["attachedRoutes"] == 0 and body["conditions"][0]["message"]


def test_the_time_of_a_condition_changes_with_its_status_alone() -> None:
    found = gateway()
    result = computed(found)
    first = statuses.gateway_status(found, result, ["192.0.2.1"], None, NOW)
    assert first is not None
    found.status, found.metadata.generation = first, 2
    second = statuses.gateway_status(found, result, ["192.0.2.1"], failed("NoResources", "no"), LATER)
    assert second is not None
    assert [(each.type, each.last_transition_time, each.observed_generation) for each in second.conditions] == [
        ("Accepted", NOW, 2),
        ("Programmed", LATER, 2),
    ]


def test_conditions_of_others_stay_and_a_newer_status_is_not_overwritten() -> None:
    found = gateway()
    result = computed(found)
    status = statuses.gateway_status(found, result, [], None, NOW)
    assert status is not None
    foreign = statuses.condition("example.com/Scanned", failed("Other", ""), 1, NOW)
    found.status = status
    status.conditions.append(foreign)
    changed = statuses.gateway_status(found, result, ["192.0.2.1"], None, LATER)
    assert changed is not None and changed.conditions[-1] == foreign
    status.conditions[0].observed_generation = 5
    assert statuses.gateway_status(found, result, ["192.0.2.1"], None, LATER) is None


def parents(found: HTTPRoute, *unknown: int, view: FakeView | None = None) -> list[dict[str, Any]] | None:
    view = view or FakeView()
    rules = convert_route(found, view)
    result = computed(gateway(), found, view=view).routes[key_of(found)]
    return statuses.route_parents(found, rules, result.attachments, unknown, NOW)


def test_parents_of_other_controllers_stay_as_they_are() -> None:
    other = {"parentRef": {"name": "x"}, "controllerName": "example.com/other", "conditions": [], "extra": {"a": 1}}
    gone = {"parentRef": {"name": "gone"}, "controllerName": "gateway.wherry.dev/controller", "conditions": []}
    found = route(rule({"name": "absent", "port": 1}))
    found.status.parents = [other, gone]
    written = parents(found)
    assert written is not None and written[0] is other and len(written) == 2
    kinds = {each["type"]: (each["status"], each["reason"]) for each in written[1]["conditions"]}
    assert kinds == {"Accepted": ("True", "Accepted"), "ResolvedRefs": ("False", "BackendNotFound")}
    assert written[1]["parentRef"] == {"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "web"}
    found.status.parents = written
    assert parents(found) is None


def test_a_status_has_no_more_parents_than_the_api_allows() -> None:
    found = route()
    others = [
        {"parentRef": {"name": f"x{n}"}, "controllerName": "example.com/other", "conditions": []} for n in range(32)
    ]
    found.status.parents = others
    assert parents(found) is None
    found.status.parents = others[:31]
    written = parents(found)
    assert written is not None and len(written) == 32


def test_the_status_at_a_gateway_that_is_not_computed_yet_stays() -> None:
    found = route()
    written = parents(found)
    assert written is not None
    found.status.parents = written
    assert statuses.route_parents(found, convert_route(found, FakeView()), {}, [0], LATER) is None
    assert statuses.route_parents(found, convert_route(found, FakeView()), {}, [], LATER) == []


def test_a_route_of_which_some_rules_are_not_served_is_partially_invalid() -> None:
    found = route(rule(path="/a", retry={}), rule())
    written = parents(found)
    assert written is not None
    (condition,) = [each for each in written[0]["conditions"] if each["type"] == "PartiallyInvalid"]
    assert condition["status"] == "True" and condition["message"].startswith("Dropped Rule: rule 0")


def test_a_class_with_parameters_is_not_accepted() -> None:
    spec: dict[str, Any] = {"controllerName": "gateway.wherry.dev/controller"}
    status = statuses.class_status(made(GatewayClass, "wherry", "", spec), NOW)
    assert status is not None and conditions(status) == {"Accepted": ("True", "Accepted")}
    assert {"name": "HTTPRoute"} in status.supported_features
    spec["parametersRef"] = {"group": "", "kind": "ConfigMap", "name": "a"}
    status = statuses.class_status(made(GatewayClass, "wherry", "", spec), NOW)
    assert status is not None and conditions(status) == {"Accepted": ("False", "InvalidParameters")}


def test_routes_of_a_namespace_that_need_too_many_comparisons_are_refused_without_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared: list[str] = []

    def recorded(each: HTTPRoute, *args: Any) -> Any:
        compared.append(key_of(each))
        return attach(each, *args)

    attach = computation.attach
    monkeypatch.setattr(computation, "attach", recorded)
    monkeypatch.setattr(computation, "MOST_COMPARISONS", 2 * 8 * 17)
    web = gateway(*(listener(f"l{n}", 80, hostname=f"{n}.com", allowedRoutes=from_all()) for n in range(8)))
    hosts = [f"h{number}.org" for number in range(16)]
    many = [
        route(
            name=f"r{number}",
            namespace="apps",
            hostnames=hosts,
            parents=[parent(namespace="infra")],
            created=f"2026-01-0{number + 1}T00:00:00Z",
        )
        for number in range(5)
    ]
    own = route(name="own", hostnames=["1.com"], created="2026-02-01T00:00:00Z")
    result = computed(web, own, *reversed(many))
    assert [reason(result, each) for each in (own, *many)] == [
        "Accepted",
        *["NoMatchingListenerHostname"] * 2,
        *["TooManyHostnames"] * 3,
    ]
    assert compared == ["apps/r0", "apps/r1", "infra/own"]


def test_routes_that_are_all_attached_need_no_more_comparisons_than_they_may() -> None:
    """The smallest routes at the most listeners, of which the matches suffice for."""
    listeners = [listener(f"l{n}", n, hostname="a.com") for n in range(1, 65)]
    sections = [parent(sectionName=f"l{n}") for n in range(1, 33)]
    many = [route(name=f"r{n}", hostnames=["a.com"], parents=sections) for n in range(MOST_MATCHES // 32)]
    result = computed(gateway(*listeners), *many)
    assert {each.accepted.ok for one in result.routes.values() for each in one.attachments.values()} == {True}
    assert sum(result.attached) == MOST_MATCHES


def test_a_computation_in_steps_yields_for_each_listener_and_each_route() -> None:
    view, routes = FakeView(), [route(name=f"r{number}") for number in range(5)]
    steps = computation.compute_in_steps(gateway(), [(each, convert_route(each, view)) for each in routes], view)
    assert len(list(steps)) == 1 + 5


async def test_after_a_computation_that_took_its_time_others_have_a_turn() -> None:
    def steps() -> Generator[int, None, str]:
        yield from ()
        burn(2 * SECONDS)
        return "done"

    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert await completed(steps()) == "done" and turns
