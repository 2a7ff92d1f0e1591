"""Hosts that Ingresses name, and the records of their owners as nodes read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator

import pytest

from kube.api import core_v1, meta_v1, networking_v1
from kube.gateway.ingress_gateway import NOBODY
from kube.gateway.ingress_hosts import MOST_NAMED, MOST_READ, Named, NamedHosts, Owners, RecordedHosts, record
from kube.gateway.names import HOSTS, NAMESPACE
from kube.gateway.steps import completed
from kube.informer import Informer
from tests.support.clock import settle
from tests.support.gateway_results import compute_ingresses, convert_ingress
from tests.support.gateways import ByAge, FakeView, ingress, ingress_rule, service
from tests.support.memory_api import MemoryAPI

MARK = core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name=HOSTS, namespace=NAMESPACE))
OTHER = core_v1.ConfigMap(metadata=meta_v1.ObjectMeta(name="kube-root-ca.crt", namespace=NAMESPACE))
NAMED: Named = (("evil", ("evil.com", "shop.com")), ("victim", ("shop.com", "new.com")))


class Records:
    """Records in an API in memory, and a node that follows them."""

    def __init__(self) -> None:
        self.api = MemoryAPI()
        self.informer = Informer(self.api.client(), core_v1.ConfigMap)
        self.hosts = RecordedHosts(self.informer)

    async def owners(self, *records: core_v1.ConfigMap) -> Owners:
        """Store records and return the owners."""
        for each in records:
            self.api.put(each)
        await settle(50)
        return await completed(self.hosts.owners(NAMED))


@pytest.fixture
async def records() -> AsyncIterator[Records]:
    found = Records()
    task = asyncio.create_task(found.informer.run())
    await found.informer.wait_synced()
    yield found
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def test_an_ingress_names_the_hosts_of_its_rules_and_certificates() -> None:
    found = ingress(
        ingress_rule("a.com"),
        {"host": "b.com"},
        ingress_rule(""),
        tls=[{"secretName": "cert", "hosts": ["a.com", "*.c.com"]}, {"hosts": ["d.com"]}],
    )
    assert NamedHosts().of(found) == ("a.com", "b.com", "*.c.com")
    many = ingress(*({"host": f"h{number}.com"} for number in range(MOST_NAMED + 5)))
    assert len(NamedHosts().of(many)) == MOST_NAMED


@pytest.mark.parametrize("kind", ["rules", "certificates"])
def test_of_the_ingresses_of_a_namespace_a_limited_number_of_names_is_read_and_kept_the_oldest_first(kind: str) -> None:
    def named(number: int) -> networking_v1.Ingress:
        hosts = [f"h{number}-{host}.com" for host in range(MOST_NAMED)]
        spec = {"tls": [{"secretName": "cert", "hosts": hosts}]} if kind == "certificates" else {}
        rules = () if kind == "certificates" else ({"host": host} for host in hosts)
        return ingress(*rules, name=f"many{number}", namespace="apps", created=f"2026-01-0{number}T00:00:00Z", **spec)

    view = FakeView(service("app", "apps"))
    late = ingress(ingress_rule("late.com"), namespace="apps", created="2026-02-01T00:00:00Z")
    other = ingress(ingress_rule("other.com"), created="2026-03-01T00:00:00Z")
    result = compute_ingresses(
        [(each, convert_ingress(each, view)) for each in (late, other, *map(named, (1, 2, 3)))], view, ByAge()
    )

    http = result.served[0]
    assert [each.hostnames for each in http.routes] == [("other.com",)]
    assert http.owners is not None and len(http.owners.namespaces) == MOST_READ + 1
    assert "late.com" in result.problems["apps/web"][0]


async def test_without_records_the_oldest_ingress_owns_a_host(records: Records) -> None:
    assert await records.owners(OTHER) == {"evil.com": "evil", "shop.com": "evil", "new.com": "victim"}


async def test_the_recorded_namespace_owns_a_host_whatever_older_ingress_names_it(records: Records) -> None:
    recorded = record("victim", "shop.com")
    assert await records.owners(recorded) == {"evil.com": "evil", "shop.com": "victim", "new.com": "victim"}
    assert await records.owners(MARK, OTHER) == {"shop.com": "victim"}


async def test_of_two_records_with_a_host_the_first_by_name_counts(records: Records) -> None:
    assert await records.owners(MARK, record("b", "a.com\nb.com"), record("a", "a.com")) == {"a.com": "a", "b.com": "b"}


def test_without_their_list_records_are_not_known() -> None:
    assert not Records().hosts.known


class Recorded:
    """Owners that are as recorded."""

    def __init__(self, owners: Owners) -> None:
        self._owners = owners

    def owners(self, named: Named) -> Generator[int, None, Owners]:
        yield 1
        return self._owners


def test_what_others_own_is_not_served_and_reported() -> None:
    view = FakeView(service("app", "apps"), certificates={"apps/cert": ""})
    owners = {"shop.com": "infra", "*.a.com": "infra", "own.com": "apps"}
    hosts = ("shop.com", "login.a.com", "own.com", "pending.com")
    thief = ingress(*map(ingress_rule, hosts), namespace="apps", tls=[{"secretName": "cert", "hosts": list(hosts)}])
    result = compute_ingresses([(thief, convert_ingress(thief, view))], view, Recorded(owners))

    http, *https = result.served
    assert [each.hostnames for each in http.routes] == [("own.com",)] and [each.hostname for each in https] == [
        "own.com"
    ]
    assert http.owners is not None and http.owners.namespaces == owners | {"pending.com": NOBODY}
    assert not result.refused
    first, second, third = result.problems["apps/web"]
    assert first == "host shop.com belongs to another namespace, whose Ingress named it first"
    assert second == "host login.a.com belongs to another namespace, whose Ingress named *.a.com first"
    assert "more than 4096 hosts" in third and "pending.com" in third


def test_an_ingress_of_which_other_namespaces_own_all_hosts_is_refused() -> None:
    own, foreign = ingress(ingress_rule("shop.com"), name="own"), ingress(ingress_rule("own.com"), name="foreign")
    both = ingress(ingress_rule("own.com"), ingress_rule(""), name="both")
    view = FakeView()
    found = [(each, convert_ingress(each, view)) for each in (own, foreign, both)]
    assert compute_ingresses(found, view, Recorded({"shop.com": "infra", "own.com": "apps"})).refused == {
        "infra/foreign"
    }
