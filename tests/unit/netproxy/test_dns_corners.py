"""Cluster DNS at its edges: types and names that clients ask by accident, search paths, and resolvers that answer nonsense."""

import random

import dns.message
import dns.rcode
import dns.rdatatype
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netproxy.dns import forwarder, wire
from netproxy.dns.forwarder import Forwarder, age, lowest_ttl
from netproxy.dns.zone import Zone
from tests.support.clock import FakeClock
from tests.support.services import endpoint, port, service, slice_of
from tests.unit.netproxy.test_dns import CLUSTER, DOMAIN, Directory, ask, responder, texts
from tests.unit.netproxy.test_dns_forwarder import upstream_answer


@pytest.mark.parametrize(
    ("name", "kind", "rcode"),
    [
        ("web.default.svc.cluster.local", "ANY", "NOERROR"),
        ("empty.default.svc.cluster.local", "ANY", "NXDOMAIN"),
        ("empty.default.svc.cluster.local", "SRV", "NXDOMAIN"),
        ("*.default.svc.cluster.local", "A", "NXDOMAIN"),  # no name is a wildcard
        ("any.default.svc.cluster.local", "A", "NXDOMAIN"),
        ("*.*.svc.cluster.local", "A", "NXDOMAIN"),
        ("web.*.svc.cluster.local", "A", "NXDOMAIN"),
        ("_any._any.web.default.svc.cluster.local", "SRV", "NXDOMAIN"),
        ("x.web.default.svc.cluster.local", "A", "NXDOMAIN"),  # a cluster IP's Service has no names of endpoints
        ("10-244-1-2.web.default.svc.cluster.local", "A", "NXDOMAIN"),
        ("a.db-0.db.default.svc.cluster.local", "A", "NXDOMAIN"),
        ("nowhere.pod.cluster.local", "A", "NOERROR"),  # below it is every address
        ("pod.cluster.local", "A", "NOERROR"),
        ("1-2-3.default.pod.cluster.local", "A", "NXDOMAIN"),
        ("256-0-0-1.default.pod.cluster.local", "A", "NXDOMAIN"),
        ("db.default.svc.cluster.local", "TXT", "NOERROR"),
        ("1.5.96.10.in-addr.arpa", "A", "NOERROR"),
        ("dns-version.cluster.local", "A", "NOERROR"),
    ],
)
def test_edges_of_the_zone(name: str, kind: str, rcode: str) -> None:
    message = ask(name, kind)
    assert dns.rcode.to_text(message.rcode()) == rcode
    if not message.answer:
        assert [rrset.rdtype for rrset in message.authority] == [dns.rdatatype.SOA]


def test_any_gives_everything_of_a_name() -> None:
    assert texts(ask("dual.default.svc.cluster.local", "ANY")) == ["10.96.5.2", "fd00:96::2"]


@pytest.mark.parametrize("pods", ["verified", "disabled"])
def test_a_namespace_of_no_pods_has_no_name_where_pods_must_exist(pods: str) -> None:
    answer = Zone(CLUSTER, DOMAIN, pods=pods).answer(f"nowhere.pod.{DOMAIN}", wire.A)
    assert answer is not None
    assert answer.rcode == wire.NXDOMAIN


@pytest.mark.parametrize("name", ["example.org", "web", "web.default", "web.default.svc"])
def test_a_search_path_is_walked_within_the_zone_to_the_name_that_is_there(name: str) -> None:
    """As a stub resolver with ndots:5 asks: each suffix in turn, until one is answered; none but the last leaves the node."""
    found = []
    for suffix in ("default.svc.cluster.local", "svc.cluster.local", "cluster.local"):
        message = ask(f"{name}.{suffix}")
        if message.rcode() == dns.rcode.NOERROR and message.answer:
            found.append(texts(message))
            break
    assert found == ([] if name == "example.org" else [["10.96.5.1"]])


def test_a_headless_dual_stack_service_answers_for_each_family() -> None:
    server = responder(
        Directory(
            service("db", "None", port("sql", 5432), ips=["None"]),
            slice_of("db", endpoint("10.244.1.2", hostname="db-0"), ports={"sql": 5432}),
            slice_of(
                "db", endpoint("fd00::2", hostname="db-0"), ports={"sql": 5432}, suffix="six", address_type="IPv6"
            ),
        )
    )
    assert texts(ask("db.default.svc.cluster.local", "A", server)) == ["10.244.1.2"]
    assert texts(ask("db-0.db.default.svc.cluster.local", "AAAA", server)) == ["fd00::2"]
    message = ask("_sql._tcp.db.default.svc.cluster.local", "SRV", server)
    assert texts(message) == ["0 100 5432 db-0.db.default.svc.cluster.local."]
    assert len([rdata for rrset in message.additional for rdata in rrset]) == 2


@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32), bites=st.integers(1, 40), cut=st.integers(0, 60))
def test_no_damaged_answer_of_a_resolver_breaks_what_ages_and_keeps_it(seed: int, bites: int, cut: int) -> None:
    chance = random.Random(seed)
    answer = bytearray(upstream_answer(dns.message.make_query("example.org", "A", use_edns=0).to_wire()))
    for _ in range(bites):
        answer[chance.randrange(12, len(answer))] = chance.randrange(256)
    damaged = bytes(answer[: max(12, len(answer) - cut)])
    assert lowest_ttl(damaged) >= 0
    assert len(age(damaged, chance.randrange(100))) == len(damaged)


@pytest.mark.parametrize("kind", ["A", "TXT"])
async def test_a_resolvers_nonsense_behind_an_alias_leaves_the_alias(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    async def exchange(host: str, number: int, message: bytes, question: bytes) -> bytes:
        return message[:2] + b"\x81\x80\x00\x01\x00\x07\x00\x00\x00\x00" + question + b"\xc0\xff\xff"

    monkeypatch.setattr(forwarder, "_over_udp", exchange)
    server = responder(forwarder=Forwarder(lambda: ["192.0.2.53"], clock=FakeClock()))
    query = dns.message.make_query("outside.default.svc.cluster.local", kind)
    answer = dns.message.from_wire(await server.slow(query.to_wire()))
    assert texts(answer) == ["example.org."]
