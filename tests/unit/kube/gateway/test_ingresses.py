"""Conversion of Ingresses, and the gateway that serves them."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from kube.api import networking_v1
from kube.gateway.ingress_gateway import (
    MOST_CERTIFICATES,
    MOST_CHARACTERS,
    MOST_MATCHES,
    IngressResult,
    compute_in_steps,
)
from kube.gateway.ingresses import CLASS_ANNOTATION, DEFAULT_CLASS, MOST_HOSTS, MOST_PATHS, is_ours
from kube.gateway.model import LONGEST_TARGET, Backend, Match, PathMatch, Rule
from kube.gateway.names import CONTROLLER, copy_of
from tests.support import cost
from tests.support.gateway_results import compute_ingresses, convert_ingress
from tests.support.gateways import ByAge, Counting, FakeView, ingress, ingress_rule, made, service

DEFAULT = {"service": {"name": "app", "port": {"number": 8080}}}


def computed(*ingresses: networking_v1.Ingress, view: FakeView | None = None) -> IngressResult:
    view = view or FakeView(
        service("app", "apps"),
        certificates={"infra/other": "", "apps/cert": "", "infra/broken": "invalid"},
    )
    return compute_ingresses([(each, convert_ingress(each, view)) for each in ingresses], view, ByAge())


def tls(secret: str, *hosts: str) -> dict[str, Any]:
    return {"secretName": secret, "hosts": list(hosts)}


def served(result: IngressResult) -> dict[str, tuple[str, ...]]:
    """Return the namespaces and hostnames of the routes, and the namespaces of the listeners for TLS, by hostname."""
    http, *https = result.served
    assert all(each.routes is http.routes and each.owners is http.owners for each in https)
    routes = tuple(f"{route.namespace}/{''.join(route.hostnames)}" for route in http.routes)
    return {"http ": routes} | {f"https {each.hostname}": (each.namespace,) for each in https}


def test_an_ingress_has_a_route_for_each_host() -> None:
    found = convert_ingress(ingress(ingress_rule("a.com", "/a", "/b"), ingress_rule("", kind="Exact")), FakeView())
    first, second = found.routes
    backends = (Backend(1, "infra", "app", 8080),)
    assert first.hostnames == ("a.com",) and first.single_label and second.hostnames == ()
    assert first.rules == tuple(
        Rule((Match(PathMatch("PathPrefix", path)),), backends=backends) for path in ("/a", "/b")
    )
    assert second.rules == (Rule((Match(PathMatch("Exact", "/")),), backends=backends),)


def test_the_default_backend_serves_the_rest_of_each_host_and_all_others() -> None:
    found = convert_ingress(ingress(ingress_rule("a.com", "/a"), {"host": "b.com"}, defaultBackend=DEFAULT), FakeView())
    assert [(each.hostnames, len(each.rules)) for each in found.routes] == [(("a.com",), 2), (("b.com",), 1), ((), 1)]
    assert all(each.rules[-1] == Rule(backends=(Backend(1, "infra", "app", 8080),)) for each in found.routes)


@pytest.mark.parametrize(
    "backend",
    [
        {"resource": {"kind": "Bucket", "name": "a"}},
        {"service": {"name": "absent", "port": {"number": 80}}},
        {"service": {"name": "app", "port": {"number": 81}}},
        {"service": {"name": "app", "port": {"name": "absent"}}},
        {"service": {"name": "external", "port": {"number": 8080}}},
    ],
)
def test_a_backend_that_cannot_be_used_is_answered_500_and_reported(backend: dict[str, Any]) -> None:
    view = FakeView(service("external", type="ExternalName", externalName="example.com"))
    found = convert_ingress(ingress(defaultBackend=backend), view)
    assert found.routes[0].rules[0].backends == (Backend(1),)
    assert len(found.problems) == 1 and "answered 500" in found.problems[0]


def test_a_named_port_is_that_of_the_service() -> None:
    backend = {"service": {"name": "app", "port": {"name": "http"}}}
    (found,) = convert_ingress(ingress(defaultBackend=backend), FakeView()).routes
    assert found.rules[0].backends == (Backend(1, "infra", "app", 8080),)


def test_a_host_belongs_to_the_namespace_that_named_it_first() -> None:
    old = ingress(ingress_rule("a.com", "/"), created="2026-01-01T00:00:00Z")
    same = ingress(ingress_rule("a.com", "/more"), name="more", created="2026-01-03T00:00:00Z")
    thief = ingress(
        ingress_rule("a.com", "/login"),
        ingress_rule("b.com"),
        ingress_rule("", "/shared"),
        namespace="apps",
        created="2026-01-02T00:00:00Z",
        tls=[tls("cert", "a.com")],
    )
    result = computed(same, thief, old)
    assert served(result) == {"http ": ("infra/a.com", "apps/b.com", "apps/", "infra/a.com")}
    assert set(result.problems) == {"apps/web"} and "a.com" in result.problems["apps/web"][0]


def test_a_certificate_serves_the_rules_with_its_hosts() -> None:
    result = computed(
        ingress(
            ingress_rule("a.com"),
            ingress_rule("b.a.com"),
            ingress_rule("c.b.a.com"),
            tls=[tls("cert", "a.com", "absent.com", "*.absent.com"), tls("other", "*.a.com", "d.b.a.com")],
        )
    )
    assert served(result) == {
        "http ": ("infra/a.com", "infra/b.a.com", "infra/c.b.a.com"),
        "https a.com": ("infra",),
        "https *.a.com": ("infra",),
    }
    assert [each.certificates for each in result.served[1:]] == [
        (copy_of("infra", "cert"),),
        (copy_of("infra", "other"),),
    ]
    assert set(result.certificates) == {("infra", "cert"), ("infra", "other")}
    wide = computed(ingress(ingress_rule("*.a.com"), tls=[tls("cert", "b.a.com", "c.b.a.com")]))
    assert served(wide) == {"http ": ("infra/*.a.com",), "https b.a.com": ("infra",)}
    anything = computed(ingress(ingress_rule(""), tls=[tls("cert", "a.com")]))
    assert served(anything) == {"http ": ("infra/",), "https a.com": ("infra",)}


def test_a_certificate_without_hosts_serves_the_hosts_of_its_rules() -> None:
    named = computed(ingress(ingress_rule("a.com"), ingress_rule("b.com"), tls=[tls("cert"), tls("other", "b.com")]))
    assert [(each.hostname, each.certificates) for each in named.served[1:]] == [
        ("b.com", (copy_of("infra", "other"),)),
        ("a.com", (copy_of("infra", "cert"),)),
    ]
    everything = computed(ingress(ingress_rule(""), tls=[tls("cert")]))
    assert served(everything) == {"http ": ("infra/",), "https ": ("infra",)}


@pytest.mark.parametrize("secret", ["absent", "broken"])
def test_an_unusable_certificate_is_reported_and_not_used(secret: str) -> None:
    result = computed(ingress(ingress_rule("a.com"), tls=[tls(secret, "a.com")]))
    assert len(result.served) == 1 and not result.certificates
    assert f"Secret {secret}" in result.problems["infra/web"][0]


def test_what_a_namespace_has_beyond_the_limits_is_not_served_and_harms_no_other() -> None:
    paths = [f"/{number}" for number in range(MOST_MATCHES)]
    hosts = [f"h{number}.com" for number in range(MOST_CERTIFICATES + 5)]
    many = ingress(ingress_rule("", *paths), name="many", created="2026-01-01T00:00:00Z")
    more = ingress(ingress_rule("", "/more"), name="more", created="2026-01-02T00:00:00Z")
    other = ingress(ingress_rule("a.com"), namespace="apps", created="2026-01-03T00:00:00Z")
    result = computed(many, more, other)
    assert served(result) == {"http ": ("infra/", "apps/a.com")}
    assert set(result.problems) == {"infra/more"}
    result = computed(ingress(*map(ingress_rule, hosts), tls=[tls("cert", *hosts)]), other)
    assert len(result.served) == 1 + MOST_CERTIFICATES
    assert "more than" in result.problems["infra/web"][0]


def test_an_ingress_with_too_many_paths_is_not_served() -> None:
    many = ingress(ingress_rule("a.com", *(f"/{number}" for number in range(MOST_PATHS + 1))), defaultBackend=DEFAULT)
    result = computed(many, ingress(ingress_rule("b.com"), name="other"))
    assert served(result) == {"http ": ("infra/b.com",)}
    assert result.problems == {"infra/web": (f"the Ingress has more than {MOST_PATHS} paths",)}
    hosts = [f"h{number}.com" for number in range(MOST_HOSTS + 5)]
    found = convert_ingress(ingress(ingress_rule("a.com"), tls=[tls("cert", *hosts)]), FakeView())
    assert len(found.certificates) == MOST_HOSTS


def test_certificates_are_checked_one_in_each_step_and_none_beyond_the_limit() -> None:
    view = Counting()
    secrets = [tls(f"s{number}", f"h{number}.com") for number in range(MOST_HOSTS)]
    found = [
        (each, convert_ingress(each, view))
        for each in (ingress(tls=secrets), ingress(name="b", tls=[tls("last", "last.com")]))
    ]
    checked = [0, *(view.checked for _ in compute_in_steps(found, view, ByAge()))]
    assert max(after - before for before, after in itertools.pairwise(checked)) == 1
    assert view.checked == MOST_CERTIFICATES


def test_the_first_secret_without_hosts_is_for_the_hosts_that_have_none() -> None:
    rules = [ingress_rule(f"h{number}.com") for number in range(100)]
    found = convert_ingress(ingress(*rules, tls=[tls("cert"), tls("more"), tls("other", "h1.com")]), FakeView())
    assert dict(found.certificates) == {f"h{number}.com": "cert" for number in range(100)} | {"h1.com": "other"}


def test_the_cost_of_secrets_without_hosts_does_not_grow_with_the_number_of_hosts() -> None:
    rules = [ingress_rule(f"h{number}.com") for number in range(100)]
    few, many = (ingress(*rules, tls=[tls("cert")] * count) for count in (10, 1000))
    lines = []
    for each in (few, many):
        with cost.Lines() as counted:
            convert_ingress(each, FakeView())
        lines.append(counted.count)
    assert lines[1] < lines[0] + 10 * 1000


def of_class(name: str, controller: str, *, default: bool = False) -> networking_v1.IngressClass:
    annotations = {DEFAULT_CLASS: "true"} if default else {}
    return made(networking_v1.IngressClass, name, "", {"controller": controller}, annotations=annotations)


def test_an_ingress_is_served_by_its_class_or_by_a_default_class() -> None:
    own, other = of_class("wherry", CONTROLLER), of_class("other", "example.com/other", default=True)
    default = of_class("wherry", CONTROLLER, default=True)
    named, absent, classless = ingress(), ingress(ingressClassName="absent"), ingress(ingressClassName=None)
    classes = {"wherry": own, "other": other}
    assert is_ours(named, classes) and not is_ours(absent, classes) and not is_ours(classless, classes)
    assert is_ours(classless, {"wherry": default})
    old = ingress(ingressClassName=None)
    old.metadata.annotations[CLASS_ANNOTATION] = "other"
    assert not is_ours(old, {"wherry": default, "other": other})
    old.metadata.annotations[CLASS_ANNOTATION] = "wherry"
    assert is_ours(old, classes)


def test_a_path_that_no_request_can_have_is_left_out_and_reported() -> None:
    longest = "/" + "x" * (LONGEST_TARGET - 1)
    found = convert_ingress(ingress(ingress_rule("a.com", longest, longest + "x", "/b")), FakeView())
    assert [rule.matches[0].path.value for rule in found.routes[0].rules] == [longest, "/b"]
    assert found.problems == ("a path has more than 16384 characters, so no request can match it",)


def test_the_paths_of_a_namespace_have_a_limited_length_the_oldest_first() -> None:
    rules = [ingress_rule("", *(f"/{'x' * 8192}{path}" for path in range(64))) for _ in range(2)]
    old, new = ingress(rules[0], created="2025-01-01T00:00:00Z", name="old"), ingress(rules[1], name="new")
    small = ingress(ingress_rule("a.com", "/"), name="web", namespace="apps")
    assert MOST_CHARACTERS == 2 * 8192 * 64
    result = computed(new, old, small)
    assert [f"{each.namespace}/{each.name}" for each in result.served[0].routes] == ["infra/old", "apps/web"]
    assert set(result.problems) == {"infra/new"} and "characters" in result.problems["infra/new"][0]
