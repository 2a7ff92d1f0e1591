"""Conversion of the rules of HTTPRoutes."""

from __future__ import annotations

from typing import Any

import pytest

from kube.gateway.filters import FRAMING
from kube.gateway.model import Backend, Filters, HeaderChange, Match, PathChange, PathMatch, Redirect
from tests.support.gateway_results import convert_route
from tests.support.gateways import FakeView, backend, grant, route, rule, service


def headers(kind: str = "request", **change: Any) -> dict[str, Any]:
    return {"type": f"{kind.capitalize()}HeaderModifier", f"{kind}HeaderModifier": change}


def test_a_rule_has_matches_filters_and_backends() -> None:
    matches = [
        {"path": {"type": "Exact", "value": "/a"}, "method": "GET"},
        {
            "headers": [{"name": "X-A", "value": "1"}, {"name": "x-a", "value": "2"}],
            "queryParams": [{"name": "q", "value": "1"}, {"name": "q", "value": "2"}, {"name": "Q", "value": "3"}],
        },
    ]
    filters = [
        headers(set=[{"name": "X-B", "value": "b"}], add=[{"name": "c", "value": ""}], remove=["X-D"]),
        headers("response", remove=["server"]),
        {"type": "URLRewrite", "urlRewrite": {"hostname": "a.com", "path": {"type": "ReplaceFullPath"}}},
    ]
    timeouts = {"request": "1m", "backendRequest": "0s"}
    found = convert_route(
        route(rule(backend(weight=3), matches=matches, filters=filters, timeouts=timeouts)), FakeView()
    )
    (made,) = found.rules
    assert made.matches == (
        Match(PathMatch("Exact", "/a"), "GET"),
        Match(headers=(("x-a", "1"),), query=(("q", "1"), ("Q", "3"))),
    )
    change = HeaderChange((("x-b", "b"),), (("c", ""),), ("x-d",))
    path = PathChange("ReplaceFullPath", "")
    assert made.filters == Filters(change, HeaderChange(remove=("server",)), None, "a.com", path)
    assert made.backends == (Backend(3, "infra", "app", 8080),)
    assert (made.request_seconds, made.backend_seconds) == (60.0, 0.0)
    assert found.supported.ok and found.resolved.ok and not found.partial


def test_a_redirect_has_the_defaults_of_the_request() -> None:
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "a.com", "statusCode": 301}}
    (made,) = convert_route(route({"filters": [redirect]}), FakeView()).rules
    assert made.filters.redirect == Redirect(hostname="a.com", status=301)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        (backend(kind="Pod"), "InvalidKind"),
        (backend(group="example.com"), "InvalidKind"),
        (backend("absent"), "BackendNotFound"),
        (backend(port=81), "BackendNotFound"),
        (backend("external"), "BackendNotFound"),
        (backend("datagrams"), "BackendNotFound"),
        (backend("h2c"), "UnsupportedProtocol"),
        (backend("app", namespace="apps"), "RefNotPermitted"),
        (backend("absent", namespace="apps"), "RefNotPermitted"),
    ],
)
def test_a_backend_that_cannot_be_used_keeps_its_weight(reference: dict[str, Any], reason: str) -> None:
    ports = [{"name": "a", "port": 8080, "protocol": "TCP", "appProtocol": "kubernetes.io/h2c"}]
    view = FakeView(
        service("external", type="ExternalName", externalName="example.com"),
        service("datagrams", ports=[{"port": 8080, "protocol": "UDP"}]),
        service("h2c", ports=ports),
        service("app", "apps"),
    )
    found = convert_route(route(rule(reference | {"weight": 7}, backend())), view)
    assert found.rules[0].backends == (Backend(7), Backend(1, "infra", "app", 8080))
    assert found.resolved.reason == reason and found.supported.ok


def test_a_grant_permits_a_backend_of_another_namespace() -> None:
    reference = backend(namespace="apps")
    view = FakeView(service("app", "apps"), grant("HTTPRoute", "infra", "Service", "apps", "app"))
    assert convert_route(route(rule(reference)), view).rules[0].backends == (Backend(1, "apps", "app", 8080),)
    other = FakeView(service("app", "apps"), grant("HTTPRoute", "infra", "Service", "apps", "other"))
    assert convert_route(route(rule(reference)), other).resolved.reason == "RefNotPermitted"
    kinds = FakeView(service("app", "apps"), grant("Gateway", "infra", "Service", "apps"))
    assert convert_route(route(rule(reference)), kinds).resolved.reason == "RefNotPermitted"


UNSUPPORTED = [
    {"type": "RequestMirror", "requestMirror": {}},
    {"type": "CORS", "cors": {}},
    {"type": "ExternalAuth", "externalAuth": {}},
    {"type": "ExtensionRef", "extensionRef": {}},
    {"type": "Unknown"},
    {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "/a b"}}},
    {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplaceFullPath", "replaceFullPath": "a"}}},
    {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/a\r\nB: c"}}},
    headers(set=[{"name": "a", "value": "b\r\nc: d"}]),
    headers(set=[{"name": "a", "value": " b"}]),
    headers(add=[{"name": "a\nb", "value": "c"}]),
    headers("response", remove=["a:b"]),
]


@pytest.mark.parametrize("found", UNSUPPORTED, ids=range(len(UNSUPPORTED)))
def test_a_rule_with_an_unsupported_filter_is_answered_500_and_not_by_other_rules(found: dict[str, Any]) -> None:
    made = convert_route(route(rule(path="/admin", filters=[found]), rule()), FakeView())
    assert made.rules[0].matches == (Match(PathMatch("PathPrefix", "/admin")),)
    assert made.rules[0].backends == () and made.rules[0].filters == Filters()
    assert made.partial.startswith("Dropped Rule: rule 0: ") and made.supported.ok
    alone = convert_route(route(rule(filters=[found])), FakeView())
    assert alone.supported.reason == "UnsupportedValue" and not alone.partial and not alone.rules


@pytest.mark.parametrize("name", sorted(FRAMING))
def test_headers_that_delimit_messages_cannot_be_changed(name: str) -> None:
    for change in ({"set": [{"name": name, "value": "1"}]}, {"remove": [name.title()]}):
        assert not convert_route(route(rule(filters=[headers(**change)])), FakeView()).supported.ok


@pytest.mark.parametrize(
    "match",
    [
        {"path": {"type": "RegularExpression", "value": ".*"}},
        {"headers": [{"type": "RegularExpression", "name": "a", "value": ".*"}]},
        {"queryParams": [{"type": "RegularExpression", "name": "a", "value": ".*"}]},
    ],
)
def test_a_rule_with_a_regular_expression_is_left_out(match: dict[str, Any]) -> None:
    made = convert_route(route(rule(matches=[match]), rule()), FakeView())
    assert len(made.rules) == 1 and "is not supported" in made.partial


def test_retries_and_sticky_sessions_are_not_supported() -> None:
    for more in ({"retry": {"attempts": 2}}, {"sessionPersistence": {"type": "Cookie"}}):
        assert "not supported" in convert_route(route(rule(**more)), FakeView()).supported.message
