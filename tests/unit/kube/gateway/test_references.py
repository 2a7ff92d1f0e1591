"""Steps in which all that refers to a changed object is gone through, for each namespace at its own expense."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from kube.gateway import references
from kube.gateway.names import INGRESS
from kube.gateway.steps import STEPS
from kube.step_limit import Limit
from tests.support.clock import settle
from tests.support.followed_gateways import Followed, ingress_class, namespace
from tests.support.gateways import (
    backend,
    from_all,
    gateway,
    grant,
    ingress,
    ingress_rule,
    listener,
    parent,
    route,
    rule,
    service,
)

ABSENT = [parent(f"absent{number}") for number in range(31)]


async def change(followed: Followed, *objects: Any) -> None:
    """Have objects observed, and no references followed."""
    followed.affected.clear()
    for each in objects:
        followed.api.put(each)
    await settle(50)


@pytest.fixture
def charged(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the namespaces at whose expense references are followed."""
    found: list[str] = []

    def limited(work: Any, limit: Limit) -> Awaitable[Any]:
        found.append(limit.owner)
        return original(work, limit)

    original = references.limited
    monkeypatch.setattr(references, "limited", limited)
    return found


@pytest.mark.parametrize(
    "changed",
    [service(port=81), namespace("apps", team="a"), grant("HTTPRoute", "apps", "Service", "infra")],
    ids=["Service", "Namespace", "ReferenceGrant"],
)
async def test_a_change_that_many_routes_refer_to_is_followed_in_steps_to_gateways_that_are_served(
    followed: Followed, charged: list[str], changed: Any
) -> None:
    rules, parents = rule(backend(namespace="infra")), [parent(namespace="infra"), *ABSENT]
    many = [route(rules, name=f"r{number}", namespace="apps", parents=parents) for number in range(100)]
    await followed.put(
        gateway(listener(allowedRoutes=from_all())), service(), grant("HTTPRoute", "apps", "Service", "infra", "app")
    )
    assert await followed.put(*many) == {"infra/web"}
    await followed.served()
    charged.clear()
    await change(followed, changed)
    assert not followed.affected and len(followed.cluster._rules) == 100
    while followed.referring:
        name = followed.referring.pop()
        following = asyncio.create_task(followed.cluster.follow_references(name))
        iterations = 0
        while not following.done():
            await asyncio.sleep(0)
            iterations += 1
        assert name != "apps" or iterations >= 100 * len(parents) // STEPS
    assert followed.affected == {"infra/web"}
    assert charged[-1] == "apps" and set(charged) <= {"apps", "infra"}
    assert not len(followed.cluster._references)


async def test_routes_of_other_namespaces_that_no_grant_permits_cost_the_owner_of_their_service_nothing(
    followed: Followed, charged: list[str]
) -> None:
    foreign = route(rule(backend(namespace="infra")), namespace="apps", parents=[parent(namespace="infra")])
    await followed.put(gateway(listener(allowedRoutes=from_all())), foreign)
    assert await followed.served() == ["/"]
    charged.clear()
    assert await followed.put(service()) == set() and not charged
    assert await followed.put(grant("HTTPRoute", "other", "Service", "infra")) == set() and not charged
    assert await followed.put(service(port=81)) == set() and charged == ["infra"]

    granted = grant("HTTPRoute", "apps", "Service", "infra")
    assert await followed.put(granted) == {"infra/web"}
    assert await followed.put(service()) == {"infra/web"}
    assert await followed.served() == ["infra/app"]
    assert await followed.remove(service()) == {"infra/web"}
    assert await followed.served() == ["/"]


async def test_a_certificate_affects_gateways_of_other_namespaces_that_a_grant_permits(followed: Followed) -> None:
    tls = {"certificateRefs": [{"name": "cert", "namespace": "apps"}]}
    await followed.put(gateway(listener("tls", 443, "HTTPS", tls=tls)))
    followed.affected.clear()
    followed.cluster.certificate_changed("apps", "cert")
    await followed.follow()
    assert followed.affected == set()
    assert await followed.put(grant("Gateway", "infra", "Secret", "apps")) == {"infra/web"}
    followed.affected.clear()
    followed.cluster.certificate_changed("apps", "cert")
    await followed.follow()
    assert followed.affected == {"infra/web"}


async def test_references_are_followed_again_if_that_was_cancelled_or_they_change_meanwhile(followed: Followed) -> None:
    many = [route(name=f"r{number}", parents=[parent(), *ABSENT]) for number in range(100)]
    await followed.put(gateway(), service(), *many)
    await followed.served()
    await change(followed, service(port=81))
    following = asyncio.create_task(followed.cluster.follow_references("infra"))
    await settle(2)
    assert not following.done()
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    following = asyncio.create_task(followed.cluster.follow_references("infra"))
    await settle(2)
    assert "/" in await followed.served()
    followed.api.put(service())
    await settle(3)
    assert not following.done()
    await following
    assert await followed.served() == ["infra/app"] * 100
    assert not len(followed.cluster._references)


async def test_a_route_affects_no_gateway_that_is_not_served(followed: Followed) -> None:
    assert await followed.put(route(parents=[parent(), *ABSENT])) == set()
    assert await followed.put(gateway(gatewayClassName="other")) == {"infra/web"}
    assert await followed.put(route(parents=[parent(), *ABSENT], generation=2)) == set()
    assert await followed.put(gateway()) == {"infra/web"}
    assert await followed.put(service()) == {"infra/web"}
    assert await followed.served() == ["infra/app"]


async def test_ingresses_of_a_changed_service_are_followed_in_steps_at_the_expense_of_their_namespace(
    followed: Followed, charged: list[str]
) -> None:
    many = [ingress(ingress_rule("a.com"), name=f"i{number}") for number in range(2000)]
    await followed.put(ingress_class(), service(), *many)
    await followed.cluster.compute_ingresses()
    converted = len(followed.cluster._ingresses)
    assert converted
    charged.clear()
    await change(followed, service(port=81))
    assert not followed.affected and len(followed.cluster._ingresses) == converted  # the handler only records it
    following = asyncio.create_task(followed.cluster.follow_references("infra"))
    assert followed.referring == {"infra"}
    iterations = 0
    while not following.done():
        await asyncio.sleep(0)
        iterations += 1
    assert iterations >= 2000 // STEPS and charged == ["infra"]
    assert followed.affected == {INGRESS} and not len(followed.cluster._ingresses)
    assert not len(followed.cluster._references)
