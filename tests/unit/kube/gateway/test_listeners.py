"""Evaluation of the listeners of a Gateway."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.gateway import allowed_routes, listeners
from kube.gateway.allowed_routes import MOST_TERMS, AllowedNamespaces
from kube.gateway.listeners import MOST_CERTIFICATES, ListenerState
from kube.gateway.objects import Gateway
from tests.support.gateway_results import result
from tests.support.gateways import Counting, FakeView, from_all, gateway, grant, listener


def evaluate(gateway: Gateway, view: FakeView) -> tuple[ListenerState, ...]:
    return result(listeners.evaluate(gateway, view))


def reasons(*given: dict[str, Any], view: FakeView | None = None, **spec: Any) -> list[tuple[str, str, str, bool]]:
    """Return the reasons of Accepted, Conflicted and ResolvedRefs of each listener, and whether it is served."""
    found = evaluate(gateway(*given, **spec), view or FakeView())
    return [(each.accepted.reason, each.conflicts.reason, each.resolved.reason, each.programmed) for each in found]


FINE = ("Accepted", "NoConflicts", "ResolvedRefs", True)


def test_http_and_https_listeners_are_served() -> None:
    assert reasons(listener(), listener("tls", 443, "HTTPS")) == [FINE, FINE]


@pytest.mark.parametrize("protocol", ["TCP", "UDP", "TLS", "example.com/own"])
def test_other_protocols_are_not_supported_and_conflict_with_nothing(protocol: str) -> None:
    found = evaluate(gateway(listener(), listener("other", 80, protocol)), FakeView())
    assert [each.accepted.reason for each in found] == ["Accepted", "UnsupportedProtocol"]
    assert [each.conflicts.ok for each in found] == [True, True]
    assert found[1].kinds == () and not found[1].programmed


def test_all_listeners_in_conflict_are_not_served() -> None:
    found = reasons(listener("a"), listener("b", 80, "HTTPS"), listener("c", 81), listener("d", 81), listener("e", 82))
    assert [(each[1], each[3]) for each in found] == [
        ("ProtocolConflict", False),
        ("ProtocolConflict", False),
        ("HostnameConflict", False),
        ("HostnameConflict", False),
        ("NoConflicts", True),
    ]


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ({"name": "absent"}, "InvalidCertificateRef"),
        ({"name": "broken"}, "InvalidCertificateRef"),
        ({"name": "cert", "kind": "ConfigMap"}, "InvalidCertificateRef"),
        ({"name": "cert", "group": "example.com"}, "InvalidCertificateRef"),
        ({"name": "cert", "namespace": "apps"}, "RefNotPermitted"),
        ({"name": "absent", "namespace": "apps"}, "RefNotPermitted"),
    ],
)
def test_a_listener_without_a_usable_certificate_is_not_served(reference: dict[str, Any], reason: str) -> None:
    view = FakeView(certificates={"infra/broken": "invalid", "apps/cert": ""})
    tls = {"certificateRefs": [reference]}
    assert reasons(listener("tls", 443, "HTTPS", tls=tls), view=view) == [("Accepted", "NoConflicts", reason, False)]


def test_a_listener_is_served_with_those_of_its_certificates_that_are_usable() -> None:
    tls = {"certificateRefs": [{"name": "absent"}, {"name": "cert"}]}
    (found,) = evaluate(gateway(listener("tls", 443, "HTTPS", tls=tls)), FakeView())
    assert found.programmed and found.resolved.reason == "InvalidCertificateRef"
    assert found.certificates == (("infra", "cert"),)


def test_more_certificates_than_the_limit_are_not_served() -> None:
    names = [f"c{number}" for number in range(MOST_CERTIFICATES + 3)]
    view = FakeView(certificates={f"infra/{name}": "" for name in names})
    tls = {"certificateRefs": [{"name": name} for name in names]}
    (found,) = evaluate(gateway(listener("tls", 443, "HTTPS", tls=tls)), view)
    assert len(found.certificates) == MOST_CERTIFICATES and not found.resolved.ok


@pytest.mark.parametrize(
    ("kind", "namespace", "name", "permitted"),
    [
        ("Gateway", "infra", "", True),
        ("Gateway", "infra", "cert", True),
        ("Gateway", "infra", "other", False),
        ("Gateway", "elsewhere", "", False),
        ("HTTPRoute", "infra", "", False),
    ],
)
def test_a_grant_permits_the_kind_namespace_and_name_that_it_names(
    kind: str, namespace: str, name: str, permitted: bool
) -> None:
    view = FakeView(grant(kind, namespace, "Secret", "apps", name), certificates={"apps/cert": ""})
    tls = {"certificateRefs": [{"name": "cert", "namespace": "apps"}]}
    (found,) = evaluate(gateway(listener("tls", 443, "HTTPS", tls=tls)), view)
    assert found.programmed is permitted


def test_a_grant_of_services_permits_no_secrets() -> None:
    view = FakeView(grant("Gateway", "infra", "Service", "apps"), certificates={"apps/cert": ""})
    tls = {"certificateRefs": [{"name": "cert", "namespace": "apps"}]}
    assert reasons(listener("tls", 443, "HTTPS", tls=tls), view=view)[0][2] == "RefNotPermitted"


@pytest.mark.parametrize("port", [0, 443])
def test_a_port_whose_clients_need_certificates_is_not_served(port: int) -> None:
    validation = {"validation": {"caCertificateRefs": [{"name": "ca"}]}}
    frontend = {"perPort": [{"port": port, "tls": validation}]} if port else {"default": validation}
    found = reasons(listener("a", 443, "HTTPS"), listener("b", 80), tls={"frontend": frontend})
    assert [(each[0], each[3]) for each in found] == [("UnsupportedValue", False), ("Accepted", True)]


def test_settings_of_a_port_replace_those_of_all_ports() -> None:
    frontend = {"default": {"validation": {}}, "perPort": [{"port": 443, "tls": {}}]}
    assert reasons(listener("a", 443, "HTTPS"), tls={"frontend": frontend}) == [FINE]


def test_unknown_kinds_of_routes_are_reported_and_the_others_supported() -> None:
    kinds = [{"kind": "TCPRoute"}, {"kind": "HTTPRoute"}, {"group": "example.com", "kind": "HTTPRoute"}]
    (found,) = evaluate(gateway(listener(allowedRoutes={"kinds": kinds})), FakeView())
    assert found.resolved.reason == "InvalidRouteKinds" and found.kinds == ("HTTPRoute",) and found.programmed


@pytest.mark.parametrize(
    ("allowed", "namespaces"),
    [
        ({}, {"infra"}),
        (from_all(), {"infra", "apps"}),
        ({"namespaces": {"from": "None"}}, set()),
        ({"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "apps"}}}}, {"apps"}),
        ({"namespaces": {"from": "Selector", "selector": {}}}, {"infra", "apps"}),
        ({"namespaces": {"from": "Selector"}}, set()),
        (
            {"namespaces": {"from": "Selector", "selector": {"matchExpressions": [{"key": "a", "operator": "No"}]}}},
            set(),
        ),
    ],
)
def test_a_listener_allows_routes_of_the_namespaces_that_it_selects(
    allowed: dict[str, Any], namespaces: set[str]
) -> None:
    view = FakeView()
    (found,) = evaluate(gateway(listener(allowedRoutes=allowed)), view)
    known = ("infra", "apps", "gone")
    assert {each for each in known if found.allows("HTTPRoute", each, "infra", view.labels(each))} == namespaces
    assert not any(found.allows("GRPCRoute", each, "infra", view.labels(each)) for each in known)


def selecting(**selector: Any) -> dict[str, Any]:
    return {"allowedRoutes": {"namespaces": {"from": "Selector", "selector": selector}}}


@pytest.mark.parametrize("form", ["labels", "values", "expressions"])
def test_a_listener_whose_selector_has_too_many_terms_is_not_served_and_costs_nothing(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def labelled(terms: int) -> dict[str, Any]:
        keys = [f"k{number}" for number in range(terms)]
        if form == "labels":
            return selecting(matchLabels=dict.fromkeys(keys, ""))
        if form == "values":
            return selecting(matchExpressions=[{"key": "a", "operator": "In", "values": keys[1:]}])
        return selecting(matchExpressions=[{"key": key, "operator": "Exists"} for key in keys])

    compiled, compile_selector = [0], allowed_routes.from_label_selector

    def counted(selector: Any) -> Any:
        compiled[0] += 1
        return compile_selector(selector)

    monkeypatch.setattr(allowed_routes, "from_label_selector", counted)
    half = MOST_TERMS // 2
    many = gateway(
        listener("a", 80, **labelled(half)),
        listener("b", 81, **labelled(140_000)),
        listener("c", 82, **labelled(half + 1)),
        listener("d", 83, **labelled(half)),
        listener("e", 84, **labelled(1)),
        listener("f", 85),
    )
    found = evaluate(many, FakeView())
    assert [each.programmed for each in found] == [True, False, False, True, False, True]
    refused = [each for each in found if not each.programmed]
    assert {each.accepted.reason for each in refused} == {"UnsupportedValue"} and str(MOST_TERMS) in refused[
        0
    ].accepted.message
    assert compiled == [2]
    assert not any(each.allows("HTTPRoute", "infra", "infra", {"k0": "", "a": "k1"}) for each in refused)
    assert "apps" not in AllowedNamespaces(many, FakeView()) and compiled == [4]


def test_listeners_are_evaluated_one_in_each_step() -> None:
    many = [listener(f"l{port}", port) for port in range(1, 65)]
    assert sum(1 for _ in listeners.evaluate(gateway(*many), FakeView())) == 64


def test_tls_listeners_with_common_names_overlap() -> None:
    hosts = ["a.com", "*.a.com", "b.a.com", "c.com"]
    made = [listener(f"l{n}", 443, "HTTPS", hostname=host) for n, host in enumerate(hosts)]
    assert [each.overlaps for each in evaluate(gateway(*made), FakeView())] == [False, True, True, False]


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["HTTP", "HTTPS"]), st.sampled_from(["", "a.com"]))))
def test_served_listeners_of_a_port_have_one_protocol_and_different_hostnames(
    listed: list[tuple[int, str, str]],
) -> None:
    made = [listener(f"l{n}", port, protocol, hostname=host) for n, (port, protocol, host) in enumerate(listed)]
    served = [each.listener for each in evaluate(gateway(*made), FakeView()) if each.programmed]
    places = [(each.port, each.hostname) for each in served]
    assert len(places) == len(set(places))
    assert len({(each.port, each.protocol) for each in served}) == len({each.port for each in served})
    for port, protocol, host in listed:
        same = [each for each in listed if each[0] == port and (each[1] != protocol or each[2] == host)]
        assert ((port, host) in places) == (len(same) == 1)


def test_certificates_are_checked_one_in_each_step_and_none_beyond_the_limit() -> None:
    view = Counting()
    references = [{"name": f"c{number}"} for number in range(64)]
    many = [listener(f"l{port}", port, "HTTPS", tls={"certificateRefs": references}) for port in range(1, 65)]
    checked = [0, *(view.checked for _ in listeners.evaluate(gateway(*many), view))]
    assert max(after - before for before, after in itertools.pairwise(checked)) == 1
    assert view.checked == 64 * MOST_CERTIFICATES
