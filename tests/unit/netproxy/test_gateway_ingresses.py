"""Ingresses at a node's gateway: namespaces that serve a host, and the size of the tables of many certificates."""

from __future__ import annotations

import time
import tracemalloc
from typing import Any

import pytest

from kube.api import networking_v1
from kube.gateway.ingress_gateway import IngressResult
from netproxy.gateway.errors import Refused
from netproxy.gateway.ingress_tables import IngressTables
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import split
from netproxy.gateway.routing import PortTable, compile_listeners
from tests.support.gateway_results import compute_ingresses, convert_ingress
from tests.support.gateways import ByAge, FakeView, ingress, ingress_rule, service

OLD, NEW = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
DEFAULT = {"service": {"name": "app", "port": {"number": 8080}}}


def computed(*ingresses: networking_v1.Ingress) -> IngressResult:
    view = FakeView(service("app", "apps"), certificates={"infra/cert": "", "apps/cert": ""})
    return compute_ingresses([(each, convert_ingress(each, view)) for each in ingresses], view, ByAge())


async def tables(*ingresses: networking_v1.Ingress) -> dict[int, PortTable]:
    return await compile_listeners(computed(*ingresses).served, IngressTables(lambda: None))


def find(ports: dict[int, PortTable], host: str, path: str = "/", *, tls: bool = False) -> str:
    """Return the namespace that serves a request, or the status that refuses it."""
    parsed = split(path.encode(), [host.encode()], requires_host=True).normal()
    try:
        found = ports[443 if tls else 80].find(RoutedRequest("GET", parsed, []), host if tls else None)
    except Refused as refused:
        return str(refused.status)
    return found.rule.namespace


def owner(*rules: dict[str, Any], created: str = OLD, **spec: Any) -> networking_v1.Ingress:
    return ingress(*rules or (ingress_rule("shop.a.com", "/api"),), created=created, **spec)


def other(*rules: dict[str, Any], created: str = NEW, **spec: Any) -> networking_v1.Ingress:
    return ingress(*rules, namespace="apps", created=created, **spec)


TLS = [{"secretName": "cert", "hosts": ["shop.a.com"]}]


@pytest.mark.parametrize("created", ["2025-01-01T00:00:00Z", NEW])
@pytest.mark.parametrize(
    ("rules", "spec"),
    [
        ([ingress_rule("")], {}),
        ([ingress_rule("*.a.com")], {}),
        ([ingress_rule("*.a.com")], {"tls": [{"secretName": "cert", "hosts": ["*.a.com"]}]}),
        ([ingress_rule("other.com")], {"defaultBackend": DEFAULT}),
        ([], {"defaultBackend": DEFAULT, "tls": [{"secretName": "cert"}]}),
    ],
)
async def test_no_other_namespace_serves_the_unmatched_paths_of_a_host(
    rules: list[dict[str, Any]], spec: dict[str, Any], created: str
) -> None:
    ports = await tables(owner(tls=TLS), other(*rules, created=created, **spec))

    assert [find(ports, "shop.a.com", tls=tls) for tls in (False, True)] == ["404", "404"]
    assert [find(ports, "shop.a.com", "/api", tls=tls) for tls in (False, True)] == ["infra", "infra"]


@pytest.mark.parametrize("rule", [ingress_rule(""), ingress_rule("*.a.com")])
async def test_the_unmatched_paths_of_a_host_are_served_by_its_namespaces_wider_rules(rule: dict[str, Any]) -> None:
    ports = await tables(owner(tls=TLS), owner(rule, name="wide"), other(ingress_rule("", "/stolen")))

    assert [find(ports, "shop.a.com", "/stolen", tls=tls) for tls in (False, True)] == ["infra", "infra"]


async def test_the_hosts_of_a_wildcard_belong_to_its_namespace_unless_they_are_named() -> None:
    ports = await tables(owner(ingress_rule("*.a.com", "/api")), other(ingress_rule(""), ingress_rule("named.a.com")))

    found = [find(ports, host) for host in ("b.a.com", "named.a.com", "c.b.a.com", "a.com")]
    assert found == ["404", "apps", "apps", "apps"]
    assert find(ports, "named.a.com", "/api") == "apps" and find(ports, "b.a.com", "/api") == "infra"


async def test_a_host_that_only_a_certificate_names_belongs_to_the_namespace_of_the_certificate() -> None:
    ports = await tables(owner(ingress_rule(""), tls=TLS), other(ingress_rule("*.a.com")))

    assert [find(ports, "shop.a.com", tls=tls) for tls in (False, True)] == ["infra", "infra"]


@pytest.mark.parametrize("hosts", [[], ["*.a.com"]])
async def test_a_certificate_serves_the_routes_of_its_namespace_alone(hosts: list[str]) -> None:
    spec: dict[str, Any] = {"tls": [{"secretName": "cert", "hosts": hosts}]}
    ports = await tables(
        owner(ingress_rule("own.a.com"), ingress_rule("", "/own"), **spec),
        other(ingress_rule("shop.a.com"), ingress_rule("", "/other")),
    )

    assert [find(ports, "own.a.com", tls=tls) for tls in (False, True)] == ["infra", "infra"]
    assert [find(ports, "shop.a.com", tls=tls) for tls in (False, True)] == ["apps", "404"]
    assert find(ports, "b.a.com", "/own", tls=True) == "infra"
    assert find(ports, "b.a.com", "/other", tls=True) == "404"


def test_of_the_certificates_without_a_host_the_oldest_is_served_and_the_other_reported() -> None:
    spec: dict[str, Any] = {"tls": [{"secretName": "cert"}]}
    result = computed(owner(ingress_rule(""), **spec), other(ingress_rule(""), **spec))

    assert set(result.problems) == {"apps/web"} and result.certificates == (("infra", "cert"),)


async def test_rules_are_compiled_once_for_all_certificates() -> None:
    hosts = [f"h{number}.a.com" for number in range(128)]
    paths = [f"/{number}" for number in range(512)]
    found = owner(ingress_rule("*.a.com", *paths), tls=[{"secretName": "cert", "hosts": hosts}])
    result = computed(found)

    tracemalloc.start()
    began = time.process_time()
    ports = await compile_listeners(result.served, IngressTables(lambda: None))
    seconds, (memory, _) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert find(ports, "h7.a.com", "/7", tls=True) == "infra" and len(result.served) == 129
    assert memory < 4 << 20 and seconds < 0.5
