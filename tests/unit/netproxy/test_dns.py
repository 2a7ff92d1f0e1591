"""Cluster DNS: answers for each form of name, the wire format against dnspython, and malformed packets."""

import random
from collections.abc import Iterable, Iterator, Sequence

import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdatatype
import dns.rrset
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.api import core_v1, discovery_v1
from netproxy.dns import wire
from netproxy.dns.endpoints import BOTH, Host, hosts
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.responder import Responder
from netproxy.dns.zone import Zone
from tests.support.services import endpoint, port, service, slice_of

DOMAIN = "cluster.local"


def matching(
    ports: Iterable[core_v1.ServicePort | discovery_v1.EndpointPort], port: str | None, protocol: str | None
) -> list[int]:
    return [
        each.port
        for each in ports
        if each.port
        and (port is None or (each.name and port == f"_{each.name}"))
        and protocol in (None, f"_{(each.protocol or 'TCP').lower()}")
    ]


class Directory:
    """Objects in plain dictionaries."""

    def __init__(self, *objects: core_v1.Service | discovery_v1.EndpointSlice) -> None:
        self.services: dict[str, core_v1.Service] = {}
        self.all_slices: list[discovery_v1.EndpointSlice] = []
        for each in objects:
            if isinstance(each, core_v1.Service):
                self.services[f"{each.metadata.namespace}/{each.metadata.name}"] = each
            else:
                self.all_slices.append(each)

    def service(self, key: str) -> core_v1.Service | None:
        return self.services.get(key)

    def slices(self, key: str) -> Iterable[discovery_v1.EndpointSlice]:
        name = key.split("/")[1]
        return [each for each in self.all_slices if each.metadata.labels["kubernetes.io/service-name"] == name]

    def hosts(self, key: str, families: Sequence[str] = BOTH, label: str | None = None) -> Iterator[Host]:
        return (host for host in hosts(self.slices(key), families) if label in (None, host.hostname))

    def has_namespace(self, namespace: str) -> bool | None:
        return any(key.startswith(namespace + "/") for key in self.services) or None

    def service_by_ip(self, ip: str) -> core_v1.Service | None:
        return next((each for each in self.services.values() if ip in each.spec.cluster_ips), None)

    def has_pod(self, namespace: str, ip: str) -> bool:
        return (namespace, ip) == ("default", "10.244.1.2")

    def srv_targets(self, key: str, port: str | None, protocol: str | None) -> Iterator[tuple[Host, int]]:
        for slice_ in self.slices(key):
            for number in matching(slice_.ports, port, protocol):
                yield from ((host, number) for host in hosts((slice_,)))

    def port_numbers(self, service: core_v1.Service, port: str | None, protocol: str | None) -> Iterable[int]:
        return matching(service.spec.ports, port, protocol)

    def names_of_address(self, address: str) -> Iterable[tuple[str, str]]:
        found = [key for key, each in self.services.items() if each.spec.cluster_ip in (None, "", "None")]
        return {(key, host.hostname): None for key in found for host in self.hosts(key) if host.ip == address}


CLUSTER = Directory(
    service("web", "10.96.5.1", port("http", 80), port("metrics", 9090)),
    service("dual", "10.96.5.2", ips=["10.96.5.2", "fd00:96::2"]),
    service("db", "None", port("sql", 5432), ips=["None"]),
    slice_of(
        "db",
        endpoint("10.244.1.2", hostname="db-0"),
        endpoint("10.244.1.3", hostname="db-1"),
        endpoint("10.244.1.4"),
        endpoint("10.244.1.5", hostname="db-9", ready=False),
        ports={"sql": 5432},
    ),
    service("empty", "None", ips=["None"]),
    service("outside", "", type="ExternalName", external_name="example.org"),
    service("alias", "", type="ExternalName", external_name="web.default.svc.cluster.local"),
)


def responder(directory: Directory = CLUSTER, forwarder: Forwarder | None = None) -> Responder:
    zone = Zone(directory, DOMAIN, addresses=["10.96.0.10"], ranges=["10.96.0.0/12", "10.244.0.0/16"])
    return Responder(zone, forwarder or Forwarder(list))


def ask(name: str, kind: str = "A", on: Responder | None = None, **options: object) -> dns.message.Message:
    """Ask as a client would, and read the answer with dnspython."""
    query = dns.message.make_query(name, kind, **options)  # type: ignore[arg-type]
    answer = (on or responder()).quick(query.to_wire())
    assert answer is not None, "the name is not the zone's"
    message = dns.message.from_wire(answer)
    assert query.is_response(message)
    return message


def texts(message: dns.message.Message) -> list[str]:
    return sorted(rdata.to_text() for rrset in message.answer for rdata in rrset)


@pytest.mark.parametrize(
    ("name", "kind", "expected"),
    [
        ("web.default.svc.cluster.local", "A", ["10.96.5.1"]),
        ("WEB.Default.svc.CLUSTER.local", "A", ["10.96.5.1"]),
        ("dual.default.svc.cluster.local", "A", ["10.96.5.2"]),
        ("dual.default.svc.cluster.local", "AAAA", ["fd00:96::2"]),
        ("db.default.svc.cluster.local", "A", ["10.244.1.2", "10.244.1.3", "10.244.1.4"]),
        ("db-1.db.default.svc.cluster.local", "A", ["10.244.1.3"]),
        ("10-244-1-4.db.default.svc.cluster.local", "A", ["10.244.1.4"]),
        ("_http._tcp.web.default.svc.cluster.local", "SRV", ["0 100 80 web.default.svc.cluster.local."]),
        (
            "web.default.svc.cluster.local",
            "SRV",
            ["0 50 80 web.default.svc.cluster.local.", "0 50 9090 web.default.svc.cluster.local."],
        ),
        (
            "_sql._tcp.db.default.svc.cluster.local",
            "SRV",
            [
                "0 33 5432 10-244-1-4.db.default.svc.cluster.local.",
                "0 33 5432 db-0.db.default.svc.cluster.local.",
                "0 33 5432 db-1.db.default.svc.cluster.local.",
            ],
        ),
        ("1.5.96.10.in-addr.arpa", "PTR", ["web.default.svc.cluster.local."]),
        ("3.1.244.10.in-addr.arpa", "PTR", ["db-1.db.default.svc.cluster.local."]),
        (
            "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.6.9.0.0.0.0.d.f.ip6.arpa",
            "PTR",
            ["dual.default.svc.cluster.local."],
        ),
        ("10-1-2-3.default.pod.cluster.local", "A", ["10.1.2.3"]),
        ("fd00--5.default.pod.cluster.local", "AAAA", ["fd00::5"]),
        ("outside.default.svc.cluster.local", "CNAME", ["example.org."]),
        ("alias.default.svc.cluster.local", "A", ["10.96.5.1", "web.default.svc.cluster.local."]),
        ("dns-version.cluster.local", "TXT", ['"1.1.0"']),
        ("ns.dns.cluster.local", "A", ["10.96.0.10"]),
        ("cluster.local", "NS", ["ns.dns.cluster.local."]),
    ],
)
def test_names_are_answered_according_to_the_specification(name: str, kind: str, expected: list[str]) -> None:
    message = ask(name, kind)
    assert message.rcode() == dns.rcode.NOERROR
    assert texts(message) == expected
    assert message.flags & dns.flags.AA
    assert message.flags & dns.flags.RA
    assert all(rrset.ttl == 5 for rrset in message.answer)


@pytest.mark.parametrize(
    "name",
    [
        "missing.default.svc.cluster.local",
        "web.other.svc.cluster.local",
        "empty.default.svc.cluster.local",
        "db-9.db.default.svc.cluster.local",
        "db-7.db.default.svc.cluster.local",
        "_ftp._tcp.web.default.svc.cluster.local",
        "_http._udp.web.default.svc.cluster.local",
        "web.default.svc.cluster.local.default.svc.cluster.local",
        "web.default.svc.cluster.local.svc.cluster.local",
        "web.default.svc.cluster.local.cluster.local",
        "default.cluster.local",
        "other.svc.cluster.local",
        "not-an-ip.default.pod.cluster.local",
        "9.9.96.10.in-addr.arpa",
        "x.outside.default.svc.cluster.local",
    ],
)
def test_what_does_not_exist_is_nxdomain_with_the_zones_soa(name: str) -> None:
    message = ask(name, "SRV" if name.startswith("_") else "A")
    assert message.rcode() == dns.rcode.NXDOMAIN
    assert [rrset.rdtype for rrset in message.authority] == [dns.rdatatype.SOA]
    assert message.authority[0].name == dns.name.from_text("cluster.local.")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("web.default.svc.cluster.local", "AAAA"),
        ("web.default.svc.cluster.local", "MX"),
        ("default.svc.cluster.local", "A"),
        ("svc.cluster.local", "A"),
        ("_tcp.web.default.svc.cluster.local", "A"),
        ("10-1-2-3.default.pod.cluster.local", "AAAA"),
        ("cluster.local", "A"),
    ],
)
def test_a_name_without_records_of_the_type_answers_noerror_and_the_soa(name: str, kind: str) -> None:
    message = ask(name, kind)
    assert (message.rcode(), texts(message)) == (dns.rcode.NOERROR, [])
    assert [rrset.rdtype for rrset in message.authority] == [dns.rdatatype.SOA]


def test_srv_answers_bring_their_targets_addresses() -> None:
    message = ask("_sql._tcp.db.default.svc.cluster.local", "SRV")
    assert {(str(rrset.name), rdata.to_text()) for rrset in message.additional for rdata in rrset} == {
        ("db-0.db.default.svc.cluster.local.", "10.244.1.2"),
        ("db-1.db.default.svc.cluster.local.", "10.244.1.3"),
        ("10-244-1-4.db.default.svc.cluster.local.", "10.244.1.4"),
    }


@pytest.mark.parametrize(
    ("pods", "name", "expected"),
    [
        ("insecure", "10-244-9-9.default", True),
        ("verified", "10-244-1-2.default", True),
        ("verified", "10-244-1-2.other", False),
        ("verified", "10-244-9-9.default", False),
        ("disabled", "10-244-1-2.default", False),
    ],
)
def test_names_of_pods_answer_as_configured(pods: str, name: str, expected: bool) -> None:
    answer = Zone(CLUSTER, DOMAIN, pods=pods).answer(f"{name}.pod.{DOMAIN}", wire.A)
    assert answer is not None
    assert (answer.rcode, bool(answer.answers)) == ((wire.NOERROR, True) if expected else (wire.NXDOMAIN, False))


def test_a_port_without_a_name_has_no_srv_record() -> None:
    zone = Zone(Directory(service("web", "10.96.5.1", port("", 80))), DOMAIN)
    answer = zone.answer(f"_._tcp.web.default.svc.{DOMAIN}", wire.SRV)
    assert answer is not None
    assert answer.rcode == wire.NXDOMAIN


def test_names_outside_the_zone_are_not_answered_from_it() -> None:
    for name in ("example.org", "cluster.local.example.org", "notcluster.local", "1.2.0.192.in-addr.arpa", "."):
        assert responder().quick(dns.message.make_query(name, "A").to_wire()) is None


def test_an_alias_that_leads_back_to_itself_ends() -> None:
    loop = Directory(service("a", "", type="ExternalName", external_name="a.default.svc.cluster.local"))
    message = ask("a.default.svc.cluster.local", on=responder(loop))
    assert message.rcode() == dns.rcode.SERVFAIL


def test_answers_rotate_so_that_clients_which_take_the_first_are_spread() -> None:
    server = responder()
    firsts = {ask("db.default.svc.cluster.local", on=server).answer[0][0].to_text() for _ in range(6)}
    assert len(firsts) == 3


def test_a_kept_answer_goes_when_its_service_changes() -> None:
    directory = Directory(service("web", "10.96.5.1"))
    server = responder(directory)
    assert texts(ask("web.default.svc.cluster.local", on=server)) == ["10.96.5.1"]
    assert ask("new.default.svc.cluster.local", on=server).rcode() == dns.rcode.NXDOMAIN
    assert ask("9.5.96.10.in-addr.arpa", "PTR", on=server).rcode() == dns.rcode.NXDOMAIN
    directory.services["default/web"] = service("web", "10.96.5.7")
    directory.services["default/new"] = service("new", "10.96.5.9")
    server.forget("default/web")
    server.forget("default/new")
    assert texts(ask("web.default.svc.cluster.local", on=server)) == ["10.96.5.7"]
    assert texts(ask("new.default.svc.cluster.local", on=server)) == ["10.96.5.9"]
    assert texts(ask("9.5.96.10.in-addr.arpa", "PTR", on=server)) == ["new.default.svc.cluster.local."]


# -- sizes, EDNS, refusals --------------------------------------------------------------------------------------------
CROWD = Directory(
    service("crowd", "None", ips=["None"]), slice_of("crowd", *(f"10.244.3.{number}" for number in range(1, 200)))
)


async def test_what_does_not_fit_is_truncated_over_udp_and_whole_over_tcp() -> None:
    server = responder(CROWD)
    name = "crowd.default.svc.cluster.local"
    for options, limit in (({}, 512), ({"use_edns": 0, "payload": 4096}, wire.OUR_UDP_SIZE)):
        query = dns.message.make_query(name, "A", **options)  # type: ignore[arg-type]
        answer = server.quick(query.to_wire())
        assert answer is not None
        assert len(answer) <= limit
        message = dns.message.from_wire(answer)
        assert message.flags & dns.flags.TC
        assert 10 < len(texts(message)) < 199
        assert bool(message.edns >= 0) == bool(options)
    query = dns.message.make_query(name, "A")
    whole = dns.message.from_wire(await server.slow(query.to_wire(), tcp=True))
    assert len(texts(whole)) == 199
    assert not whole.flags & dns.flags.TC


def test_an_unknown_edns_version_is_answered_badvers() -> None:
    query = dns.message.make_query("web.default.svc.cluster.local", "A", use_edns=0)
    query.use_edns(edns=1)
    answer = responder().quick(query.to_wire())
    assert answer is not None
    assert dns.message.from_wire(answer).rcode() == dns.rcode.BADVERS


def test_other_classes_and_operations_are_refused() -> None:
    chaos = dns.message.make_query("version.bind", "TXT", rdclass="CH")
    assert dns.message.from_wire(responder().quick(chaos.to_wire()) or b"").rcode() == dns.rcode.REFUSED
    notify = dns.message.make_query("cluster.local", "SOA")
    notify.set_opcode(dns.opcode.NOTIFY)  # type: ignore[attr-defined]
    assert dns.message.from_wire(responder().quick(notify.to_wire()) or b"").rcode() == dns.rcode.NOTIMP


def test_before_the_cluster_is_known_names_fail_for_now_and_are_not_denied() -> None:
    zone = Zone(CLUSTER, DOMAIN)
    server = Responder(zone, Forwarder(list), ready=lambda: False)
    assert ask("web.default.svc.cluster.local", on=server).rcode() == dns.rcode.SERVFAIL


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300))
def test_no_packet_breaks_the_server(data: bytes) -> None:
    answer = responder().quick(data)
    assert answer is None or answer == b"" or (answer[:2] == data[:2] and answer[2] & 0x80)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_no_damaged_query_breaks_the_server(seed: int, bites: int) -> None:
    chance = random.Random(seed)
    query = bytearray(
        dns.message.make_query("_http._tcp.web.default.svc.cluster.local", "SRV", use_edns=0, payload=1400).to_wire()
    )
    for _ in range(bites):
        query[chance.randrange(len(query))] = chance.randrange(256)
    cut = bytes(query[: chance.randrange(len(query) + 1)])
    for packet in (bytes(query), cut):
        answer = responder().quick(packet)
        if answer:
            assert answer[:2] == packet[:2]
            assert len(answer) <= wire.OUR_UDP_SIZE


@settings(deadline=None)
@given(st.text(alphabet="abcdefghijklmnopqrstuvwxyz0123456789-_.", max_size=80), st.sampled_from([1, 12, 28, 33, 255]))
def test_every_name_inside_the_zone_gets_an_answer_that_parses(text: str, kind: int) -> None:
    try:
        name = dns.name.from_text(f"{text}.svc.{DOMAIN}.")
    except Exception:
        return
    answer = responder().quick(dns.message.make_query(name, kind).to_wire())
    if answer is not None:
        dns.message.from_wire(answer)
