"""Gateways of a cluster: those that a change affects, and their computation after it."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import pytest

from kube.gateway import ingresses, rules
from kube.gateway.ingress_conversions import MOST_CONVERTED
from kube.gateway.ingresses import MOST_PATHS
from kube.gateway.match_limit import MOST_MATCHES
from kube.gateway.names import INGRESS
from kube.gateway.objects import HTTPRoute
from kube.gateway.view import Certificate
from kube.object_names import key_of
from kube.step_limit import StepTooLong
from tests.support.followed_gateways import Followed, ingress_class, namespace, of_class
from tests.support.gateways import (
    backend,
    from_all,
    gateway,
    grant,
    ingress,
    ingress_rule,
    listener,
    made,
    parent,
    route,
    rule,
    service,
)


async def test_a_gateway_is_served_while_its_class_is_wherrys(followed: Followed) -> None:
    assert await followed.put(gateway()) == {"infra/web"}
    assert followed.cluster.gateway("infra/web") is not None
    assert await followed.put(of_class("example.com/other")) == {"infra/web"}
    assert followed.cluster.gateway("infra/web") is None
    assert await followed.put(of_class(parametersRef={"name": "a"})) == {"infra/web"}
    assert followed.cluster.gateway("infra/web") is None


async def test_a_service_affects_the_gateways_of_its_routes(followed: Followed) -> None:
    await followed.put(gateway(), gateway(name="other"), route())
    assert await followed.served() == ["/"]
    assert await followed.put(service()) == {"infra/web"}
    assert await followed.served() == ["infra/app"]
    assert await followed.put(service("unused")) == set()
    assert await followed.put(service(clusterIP="10.96.0.1")) == set()  # nothing that a route depends on
    assert await followed.put(service(port=81)) == {"infra/web"}
    assert await followed.served() == ["/"]
    assert await followed.remove(service()) == {"infra/web"}


async def test_a_grant_affects_routes_and_gateways_that_refer_to_its_namespace(followed: Followed) -> None:
    tls = {"certificateRefs": [{"name": "cert", "namespace": "apps"}]}
    listeners = [listener(), listener("tls", 443, "HTTPS", tls=tls)]
    other = gateway(listeners[1], name="other")
    await followed.put(gateway(listeners[0]), other, route(rule(backend(namespace="apps"))), service("app", "apps"))
    assert await followed.served() == ["/"]
    made_grant = grant("HTTPRoute", "infra", "Service", "apps")
    assert await followed.put(made_grant) == {"infra/web", "infra/other"}
    assert await followed.served() == ["apps/app"]
    assert await followed.remove(made_grant) == {"infra/web", "infra/other"}
    assert await followed.served() == ["/"]


async def test_labels_of_a_namespace_affect_the_gateways_of_its_routes(followed: Followed) -> None:
    allowed = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "a"}}}}
    found = route(namespace="apps", parents=[parent(namespace="infra")])
    await followed.put(gateway(listener(allowedRoutes=allowed)), found, service("app", "apps"))
    assert await followed.served() == []
    assert await followed.put(namespace("apps", team="a")) == {"infra/web"}
    assert await followed.served() == ["apps/app"]
    assert await followed.put(namespace("infra", team="b")) == set()
    assert await followed.remove(namespace("apps", team="a")) == {"infra/web"}
    assert await followed.served() == []


async def test_a_route_affects_its_old_and_new_gateways_and_statuses_affect_nothing(followed: Followed) -> None:
    await followed.put(gateway(), gateway(name="other"), service())
    found = route()
    assert await followed.put(found) == {"infra/web"}
    found.status.parents = [{"controllerName": "example.com/other"}]
    assert await followed.put(found) == set()
    assert await followed.put(route(parents=[parent("other")])) == {"infra/web", "infra/other"}
    assert await followed.served() == [] and await followed.served("infra/other") == ["infra/app"]
    changed = gateway()
    changed.status.addresses = [{"value": "192.0.2.1"}]
    assert await followed.put(changed) == set()


async def test_a_certificate_affects_the_gateways_and_ingresses_that_name_it(followed: Followed) -> None:
    await followed.put(
        gateway(listener("tls", 443, "HTTPS")),
        gateway(name="other"),
        ingress(ingress_rule("a.com"), tls=[{"secretName": "cert", "hosts": ["a.com"]}]),
        service(),
    )
    found = followed.cluster.gateway("infra/web")
    assert found is not None and not (await followed.cluster.compute(found)).served
    assert len((await followed.cluster.compute_ingresses()).served) == 1
    followed.affected.clear()
    followed.certificates["infra/cert"] = ""
    followed.cluster.certificate_changed("infra", "cert")
    await followed.follow()
    assert followed.affected == {"infra/web", INGRESS}
    assert len((await followed.cluster.compute(found)).served) == 1
    assert len((await followed.cluster.compute_ingresses()).served) == 2


async def test_ingresses_are_computed_again_when_their_services_change(followed: Followed) -> None:
    assert await followed.put(ingress(ingress_rule("a.com"))) == {INGRESS}
    assert (await followed.cluster.compute_ingresses()).problems
    assert await followed.put(service()) == {INGRESS}
    assert not (await followed.cluster.compute_ingresses()).problems
    assert await followed.put(ingress_class("example.com/other")) == {INGRESS}
    assert followed.cluster.served_ingresses() == []


async def test_an_object_that_does_not_fit_its_type_affects_no_others(followed: Followed) -> None:
    await followed.put(gateway(), route(), service())
    broken = made(HTTPRoute, "broken", "infra", {"parentRefs": [parent(port=80)]})
    broken.spec.parent_refs[0].port = 80.5  # type: ignore[assignment]
    await followed.put(broken)
    await followed.put(route(name="later", parents=[parent()]))
    assert await followed.served() == ["infra/app", "infra/app"]


async def test_the_matches_of_a_namespace_are_limited_over_all_of_its_gateways(followed: Followed) -> None:
    old, new = gateway(), gateway(name="new")
    old.metadata.creation_timestamp, new.metadata.creation_timestamp = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
    hosts = [f"h{number}.com" for number in range(16)]
    most = MOST_MATCHES // (16 * 128)
    both = [parent(), parent("new")]
    routes = [
        route(*[rule(matches=[{}] * 8)] * 16, name=f"r{number}", hostnames=hosts, parents=both)
        for number in range(most - 1)
    ]
    await followed.put(new, old, service(), *routes)
    assert len(await followed.served("infra/web")) == 16 * (most - 1)
    assert len(await followed.served("infra/new")) == 16
    other = route(namespace="apps", parents=[parent("new", namespace="infra")])
    assert await followed.put(other) == {"infra/new"}
    followed.affected.clear()
    await followed.remove(routes[0])
    assert len(await followed.served("infra/web")) == 16 * (most - 2)
    assert "infra/new" in followed.affected and len(await followed.served("infra/new")) == 16 * (most - 2)
    assert await followed.remove(other) == {"infra/new"}
    await followed.put(routes[0])
    assert len(await followed.served("infra/web")) == 16 * (most - 1)
    assert len(await followed.served("infra/new")) == 16
    assert await followed.remove(old) == {"infra/web", "infra/new"}
    assert len(await followed.served("infra/new")) == 16 * (most - 1)
    assert await followed.put(old) == {"infra/web"}
    await followed.served("infra/web")
    assert "infra/new" in followed.affected and len(await followed.served("infra/new")) == 16
    assert followed.cluster.by_age({"infra/new", "infra/web", INGRESS, "gone/gone"})[-2:] == ["infra/web", "infra/new"]


async def test_an_object_whose_conversion_is_stopped_affects_no_others(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    convert_ingress, convert_route = ingresses.convert_in_steps, rules.convert_in_steps
    converted = []

    def stopping(convert: Any) -> Any:
        def steps(found: Any, view: Any) -> Any:
            converted.append(found.metadata.name)
            if found.metadata.name == "slow":
                raise StepTooLong
            return (yield from convert(found, view))

        return steps

    monkeypatch.setattr(ingresses, "convert_in_steps", stopping(convert_ingress))
    monkeypatch.setattr(rules, "convert_in_steps", stopping(convert_route))
    shared = gateway(listener(allowedRoutes=from_all()), namespace="infra")
    to_shared = [parent(namespace="infra")]
    await followed.put(shared, service(), service("app", "apps"))
    await followed.put(ingress(ingress_rule("a.com"), name="slow"), ingress(ingress_rule("b.com"), namespace="apps"))
    await followed.put(route(name="slow", namespace="apps", parents=to_shared), route(name="other"))
    result = await followed.cluster.compute_ingresses()
    assert [each.namespace for each in result.served[0].routes] == ["apps"]
    assert list(result.problems) == ["infra/slow"]
    assert await followed.served() == ["infra/app"]

    await followed.put(ingress(ingress_rule("c.com"), name="slow"))
    converted.clear()
    result = await followed.cluster.compute_ingresses()
    assert list(result.problems) == ["infra/slow"] and not converted


async def test_a_namespace_has_no_more_paths_of_its_ingresses_converted_than_it_may_have(followed: Followed) -> None:
    many = [
        ingress(ingress_rule("", *(f"/{path}" for path in range(MOST_PATHS))), name=f"many{number}")
        for number in range(4)
    ]
    large = ingress(ingress_rule("", *(f"/{path}" for path in range(MOST_PATHS + 1))), name="large")
    await followed.put(
        service(), service("app", "apps"), large, *many, ingress(ingress_rule("b.com"), namespace="apps")
    )
    result = await followed.cluster.compute_ingresses()
    assert [(each.namespace, each.name) for each in result.served[0].routes] == [("apps", "web"), ("infra", "many0")]
    assert len(followed.cluster._ingresses) == MOST_CONVERTED // MOST_PATHS + 2
    assert set(result.problems) == {"infra/large", "infra/many1", "infra/many2", "infra/many3"}


async def test_nothing_is_kept_of_routes_that_are_gone(followed: Followed) -> None:
    routes = [route(name=f"r{number}") for number in range(5)]
    await followed.put(gateway(), service(), *routes)
    assert len(await followed.served()) == 5
    for each in routes:
        await followed.remove(each)
    assert await followed.served() == []
    assert not len(followed.cluster._rules)


async def test_a_listener_for_all_namespaces_serves_routes_of_each(followed: Followed) -> None:
    other = route(namespace="apps", parents=[parent(namespace="infra")])
    await followed.put(gateway(listener(allowedRoutes=from_all())), route(), other, service(), service("app", "apps"))
    assert sorted(await followed.served()) == ["apps/app", "infra/app"]


@pytest.mark.parametrize("kind", ["Gateway", "Ingress"])
async def test_a_few_certificates_are_checked_in_an_iteration_of_the_loop(followed: Followed, kind: str) -> None:
    """The check of one takes a millisecond, and users decide how many there are."""
    checks = 0

    def check(namespace: str, name: str) -> Certificate:
        nonlocal checks
        checks += 1
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            pass
        return "invalid"

    followed.cluster.certificate = check
    names = [f"s{number}" for number in range(50)]
    if kind == "Gateway":
        many = [
            listener(each, number, "HTTPS", tls={"certificateRefs": [{"name": each}]})
            for number, each in enumerate(names, 1)
        ]
        await followed.put(found := gateway(*many))
        computing: asyncio.Task[Any] = asyncio.create_task(followed.cluster.compute(found))
    else:
        await followed.put(ingress(tls=[{"hosts": [f"{each}.com"], "secretName": each} for each in names]))
        computing = asyncio.create_task(followed.cluster.compute_ingresses())
    seen = [0]
    while not computing.done():
        await asyncio.sleep(0)
        seen.append(checks)
    await computing
    assert checks == 50 and max(after - before for before, after in itertools.pairwise(seen)) <= 3


async def test_routes_in_namespaces_that_no_listener_allows_are_not_converted(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    converted: list[str] = []
    convert = rules.convert_in_steps

    def recorded(each: HTTPRoute, view: Any) -> Any:
        converted.append(key_of(each))
        return convert(each, view)

    monkeypatch.setattr(rules, "convert_in_steps", recorded)
    selected = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"team": "web"}}}}
    parents = [parent(namespace="infra"), parent(sectionName="absent", namespace="infra")]
    foreign = route(namespace="apps", parents=parents)
    web = gateway(listener(), listener("more", 8080, allowedRoutes=selected))
    await followed.put(web, service(), foreign)
    result = await followed.cluster.compute(web)
    (found,) = result.routes.values()
    assert not converted and not found.compared and found.resolved is None
    assert [each.accepted.reason for each in found.attachments.values()] == ["NotAllowedByListeners"] * 2

    await followed.cluster.rules_of("apps/route", foreign)
    assert (await followed.cluster.compute(web)).routes["apps/route"].resolved is not None

    assert await followed.put(namespace("apps", team="web")) == {"infra/web"}
    found = (await followed.cluster.compute(web)).routes["apps/route"]
    assert found.compared and found.attachments[0].accepted.ok
    assert found.attachments[1].accepted.reason == "NoMatchingParent"
