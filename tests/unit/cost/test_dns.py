"""Cost of a DNS query depends on its answer only: thousands of endpoints and ports of a Service are not iterated."""

from __future__ import annotations

from collections.abc import Callable

import dns.flags
import dns.message
import pytest

from kube.api import core_v1, discovery_v1
from kube.informer import Informer
from netproxy.dns import wire
from netproxy.dns.directory import InformerDirectory
from netproxy.dns.forwarder import Forwarder
from netproxy.dns.responder import Responder
from netproxy.dns.zone import Zone
from tests.support.cost import Case, steps
from tests.support.memory_api import MemoryAPI
from tests.support.services import endpoint, port, service, slice_of

DOMAIN = "cluster.local"
PER_SLICE = 100
PORTS = 200
FEW, MANY = 1000, 10_000
"""Endpoints of the Service."""


def address(number: int) -> str:
    return f"10.244.{number // 250}.{number % 250}"


def cluster(endpoints: int) -> Responder:
    """Answer for a headless Service of so many endpoints, every tenth with a hostname, and one of as many ports."""
    client = MemoryAPI().client()
    services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    services._set("default/crowd", service("crowd", "None", ips=["None"]))
    services._set("default/ports", service("ports", "10.96.5.1", *(port(f"p{n}", n) for n in range(1, endpoints))))
    for first in range(0, endpoints, PER_SLICE):
        made = slice_of(
            "crowd",
            *(
                endpoint(address(n), hostname=f"host-{n}" if n % 10 == 0 else None)
                for n in range(first, first + PER_SLICE)
            ),
            ports={f"p{n}": n for n in range(1, PORTS)},
            suffix=str(first),
        )
        slices._set(f"default/crowd-{first}", made)
    for number in range(endpoints // 100):  # as many headless Services have a pod in common
        services._set(f"default/same-{number}", service(f"same-{number}", "None", ips=["None"]))
        slices._set(f"default/same-{number}", slice_of(f"same-{number}", "10.245.0.1"))
    return Responder(Zone(directory, DOMAIN, ranges=["10.96.0.0/12"]), Forwarder(list))


SERVERS = {size: cluster(size) for size in (FEW, MANY)}


def shared(services_count: int) -> Responder:
    """Answer for so many headless Services of the same pods, and as many that have addresses."""
    client = MemoryAPI().client()
    services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    pods = [endpoint(f"10.244.0.{n}", hostname=f"pod-{n}" if n % 2 else None) for n in range(1, PODS + 1)]
    others = [endpoint(f"10.244.1.{n}") for n in range(1, PODS + 1)]
    for number in range(services_count):
        name = f"same-{number:05}"
        services._set(f"default/{name}", service(name, "None", ips=["None"]))
        slices._set(f"default/{name}", slice_of(name, *pods))
        name = f"addressed-{number:05}"
        services._set(f"default/{name}", service(name, "10.96.5.1"))
        slices._set(f"default/{name}", slice_of(name, *others))
    return Responder(Zone(directory, DOMAIN, ranges=["10.96.0.0/12", "10.244.0.0/16"]), Forwarder(list))


PODS = 50
SOME, THOUSAND = 100, 1000
"""Services of the same pods."""
SHARED = {count: shared(count) for count in (SOME, THOUSAND)}


def lines(
    server: Responder, name: str, kind: str, *, tcp: bool = False, chosen: Callable[[list[int]], int] = min
) -> int:
    """Return the lines executed for an answer that is not kept; `chosen` takes one of the first and the second time."""
    question = dns.message.make_query(name, kind).to_wire()
    counted = Case("question", lambda _: question, lambda data: server.quick(data, tcp=tcp))
    found = []
    for _ in range(2):
        for key in ("default/same-00007", "default/own", "default/crowd"):
            server.forget(key)
        found.append(steps(counted, question))
    return chosen(found)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("50.0.244.10.in-addr.arpa", "PTR"),
        ("49.0.244.10.in-addr.arpa", "ANY"),
        ("50.0.244.10.in-addr.arpa", "A"),
        ("50.0.244.10.in-addr.arpa", "MX"),
        ("50.1.244.10.in-addr.arpa", "PTR"),
        ("99.0.244.10.in-addr.arpa", "PTR"),
        ("10-244-0-50.same-00007.default.svc.cluster.local", "A"),
        ("pod-49.same-00007.default.svc.cluster.local", "A"),
        ("10-244-0-49.same-00007.default.svc.cluster.local", "A"),
        ("10-244-1-50.same-00007.default.svc.cluster.local", "A"),
        ("same-00007.default.svc.cluster.local", "SRV"),
        ("made-up.default.svc.cluster.local", "A"),
        ("default.svc.cluster.local", "A"),
        ("10-244-0-1.default.pod.cluster.local", "A"),
    ],
)
def test_an_answer_does_not_cost_what_other_services_of_the_same_pods_have(name: str, kind: str) -> None:
    few, many = (lines(SHARED[count], name, kind) for count in (SOME, THOUSAND))
    assert many <= few + 20
    assert many < 2000


def test_the_names_of_an_address_cost_what_fits_in_the_answer() -> None:
    few, many = (lines(SHARED[count], "50.0.244.10.in-addr.arpa", "PTR", tcp=True) for count in (SOME, THOUSAND))
    assert many - few < 100 * (THOUSAND - SOME)


@pytest.mark.parametrize(("kind", "most"), [("SRV", 90_000), ("A", 180_000)])
def test_a_long_answer_costs_the_records_that_fit(kind: str, most: int) -> None:
    assert lines(SERVERS[MANY], "crowd.default.svc.cluster.local", kind, tcp=True) < most


@pytest.mark.parametrize("place", [0, 50, 99])
def test_an_index_costs_the_endpoints_that_change(place: int) -> None:
    """A pod of many Services that comes, goes or becomes ready changes a slice of each."""
    informer = Informer(MemoryAPI().client(), discovery_v1.EndpointSlice)
    InformerDirectory(Informer(MemoryAPI().client(), core_v1.Service), informer)
    pods = [endpoint(address(n)) for n in range(100)]
    without = [*pods[:place], *pods[place + 1 :]]
    unready = [*pods[:place], endpoint(address(place), ready=False), *pods[place + 1 :]]
    for revision, each in enumerate((pods, unready, pods, without, pods)):
        made = slice_of("web", *each)
        made.metadata.resource_version = str(revision)
        counted = steps(Case("change", lambda _: None, lambda new: informer._set("default/web", new)), made)
        assert revision == 0 or counted < 500


def cost(size: int, name: str, kind: str, **options: object) -> int:
    """Return the lines executed for an answer that is not kept."""
    server = SERVERS[size]
    question = dns.message.make_query(name, kind, **options).to_wire()  # type: ignore[arg-type]
    counted = Case("question", lambda _: question, server.quick)
    first = steps(counted, question)
    for key in ("default/crowd", "default/ports"):
        server.forget(key)
    return min(first, steps(counted, question))


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("crowd", "A"),
        ("crowd", "ANY"),
        ("crowd", "MX"),
        ("crowd", "SRV"),
        ("_p7._tcp.crowd", "SRV"),
        ("_p8._tcp.ports", "SRV"),
        ("_made-up._tcp.ports", "SRV"),
        ("ports", "SRV"),
        ("made-up.crowd", "A"),
        ("10-9-9-9.crowd", "A"),
        ("10-244-0-1.crowd", "A"),
        ("10-244-3-249.crowd", "A"),
        ("host-0.crowd", "A"),
        ("host-990.crowd", "A"),
        ("made-up", "A"),
        ("10-244-0-1.default.pod", "A"),
    ],
)
@pytest.mark.parametrize("size", [512, 4096])
def test_an_answer_costs_what_it_holds(name: str, kind: str, size: int) -> None:
    full = name + (".cluster.local" if name.endswith(".pod") else ".default.svc.cluster.local")
    few, many = (cost(each, full, kind, use_edns=0, payload=size) for each in (FEW, MANY))
    assert many <= few + 200
    assert many < 20_000


@pytest.mark.parametrize(("name", "kind"), [("crowd", "AAAA"), ("_made-up._tcp.crowd", "SRV")])
def test_where_nothing_is_found_no_slice_is_looked_at(name: str, kind: str) -> None:
    few, many = (cost(each, f"{name}.default.svc.cluster.local", kind) for each in (FEW, MANY))
    assert many <= few + 20


def mostly_unready(unready: int) -> Responder:
    """Answer for a Service of ten slices, each with a ready endpoint behind many that are not."""
    client = MemoryAPI().client()
    services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    services._set("default/own", service("own", "None", ips=["None"]))
    for number in range(10):
        pods = [endpoint(address(n), ready=n == unready, hostname=f"h{number}-{n}") for n in range(unready + 1)]
        slices._set(f"default/own-{number}", slice_of("own", *pods, suffix=str(number)))
    return Responder(Zone(directory, DOMAIN, ranges=["10.96.0.0/12"]), Forwarder(list))


@pytest.mark.parametrize("name", ["own", "_http._tcp.own", "_tcp.own"])
def test_endpoints_that_are_not_ready_cost_nothing(name: str) -> None:
    few, many = (lines(mostly_unready(each), f"{name}.default.svc.cluster.local", "SRV") for each in (10, 900))
    assert many <= few + 20


def test_the_ready_endpoints_of_a_slice_follow_its_changes() -> None:
    services = Informer(MemoryAPI().client(), core_v1.Service)
    slices = Informer(MemoryAPI().client(), discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    for revision, ready in enumerate(([0, 2], [0, 1, 2], [2], [], [1])):
        made = slice_of("own", *(endpoint(address(n), ready=n in ready) for n in range(3)))
        made.metadata.resource_version = str(revision)
        slices._set("default/own-abcde", made)
        found = [host.ip for host, _ in directory.srv_targets("default/own", "_http", "_tcp")]
        assert found == [address(n) for n in ready]


def sliced(count: int) -> Responder:
    """Answer for a Service of so many pods, each with numbers of its own for the ports' names; the last alone is ready."""
    client = MemoryAPI().client()
    services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    services._set("default/own", service("own", "None", ips=["None"]))
    for number in range(count):
        numbers = {f"p{n}": n + number for n in range(1, 20)}
        made = slice_of("own", endpoint(address(number), ready=number == count - 1), ports=numbers, suffix=str(number))
        slices._set(f"default/own-{number}", made)
    return Responder(Zone(directory, DOMAIN), Forwarder(list))


@pytest.mark.parametrize("name", ["_made-up._tcp.own", "_p7._tcp.own", "_tcp.own", "own"])
def test_a_question_of_ports_does_not_cost_the_slices_of_others(name: str) -> None:
    few, many = (lines(sliced(count), f"{name}.default.svc.cluster.local", "SRV") for count in (10, 1500))
    assert many <= few + 20


@pytest.mark.parametrize("name", ["_made-up._tcp", "_p7._tcp", "_udp", "_made-up"])
def test_a_port_of_a_service_adds_no_cost_to_others_whichever_was_queried_before(name: str) -> None:
    services = Informer(MemoryAPI().client(), core_v1.Service)
    directory = InformerDirectory(services, Informer(MemoryAPI().client(), discovery_v1.EndpointSlice))
    for number in range(20):
        made = service(f"ports-{number}", "10.96.5.1", *(port(f"p{n}", n) for n in range(1, 1000)))
        services._set(f"default/ports-{number}", made)
    server = Responder(Zone(directory, DOMAIN), Forwarder(list))
    for number in range(20):
        assert lines(server, f"{name}.ports-{number}.default.svc.cluster.local", "SRV", chosen=max) < 500


def test_an_address_that_many_services_share_gives_no_more_names_than_there_is_room_for() -> None:
    answer = SERVERS[MANY]._zone.answer("1.0.245.10.in-addr.arpa", 12, 1000)
    assert answer is not None and 1000 < sum(record.size for record in answer.answers) < 1100


# -- what repeats in large slices ---------------------------------------------------------------------------------
def repeating(slices_count: int, endpoints: list[discovery_v1.Endpoint], ports: dict[str, int]) -> Responder:
    """Answer for a headless Service of slices that say the same."""
    client = MemoryAPI().client()
    services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
    directory = InformerDirectory(services, slices)
    services._set("default/own", service("own", "None", ips=["None"]))
    for number in range(slices_count):
        slices._set(f"default/own-{number}", slice_of("own", *endpoints, ports=ports, suffix=str(number)))
    return Responder(Zone(directory, DOMAIN), Forwarder(list))


ONE_NUMBER = {f"p{n}": 80 for n in range(200)}
NUMBERS = {f"p{n}": n for n in range(1, 201)}
REPEATING: dict[str, Callable[[int], Responder]] = {
    "an address, and names of a number": lambda n: repeating(1, [endpoint("10.244.0.1")] * n, ONE_NUMBER),
    "an address, and numbers": lambda n: repeating(1, [endpoint("10.244.0.1")] * n, NUMBERS),
    "a hostname, and numbers": lambda n: repeating(1, [endpoint(address(m), hostname="h") for m in range(n)], NUMBERS),
    "hostnames of an address": lambda n: repeating(
        1, [endpoint("10.244.0.1", hostname=f"h{m}") for m in range(n)], {"p": 80}
    ),
    "slices": lambda n: repeating(n, [endpoint("10.244.0.1")] * 20, ONE_NUMBER),
}


@pytest.mark.parametrize("what", REPEATING)
@pytest.mark.parametrize("name", ["own", "_tcp.own", "_p7._tcp.own", "10-244-0-1.own"])
@pytest.mark.parametrize("kind", ["A", "SRV", "ANY"])
def test_what_repeats_is_not_multiplied(what: str, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("netproxy.dns.endpoints.MAX_STEPS", 300)
    few, many = (
        lines(REPEATING[what](size), f"{name}.default.svc.cluster.local", kind, tcp=True) for size in (400, 800)
    )
    assert many <= few + 50
    assert many < 50_000


@pytest.mark.parametrize("what", ["an address, and names of a number", "hostnames of an address", "slices"])
def test_an_incomplete_search_returns_a_truncated_answer(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    question = dns.message.make_query("own.default.svc.cluster.local", "A" if what.startswith("hostnames") else "SRV")
    for most, cut in ((300, True), (100_000, False)):
        monkeypatch.setattr("netproxy.dns.endpoints.MAX_STEPS", most)
        answer = dns.message.from_wire(REPEATING[what](400).quick(question.to_wire(), tcp=True) or b"")
        assert answer.answer and bool(answer.flags & dns.flags.TC) == cut


def test_a_service_that_comes_and_goes_does_not_cost_its_endpoints() -> None:
    def toggle(count: int) -> list[int]:
        client = MemoryAPI().client()
        services, slices = Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)
        directory = InformerDirectory(services, slices)
        for number in range(count):
            slices._set(
                f"default/own-{number}",
                slice_of("own", *map(address, range(number * 100, number * 100 + 100)), suffix=str(number)),
            )
        headless, addressed = service("own", "None", ips=["None"]), service("own", "10.96.5.1")
        found = []
        for revision, made in enumerate((headless, addressed, headless)):
            made.metadata.resource_version = str(revision)
            put = Case("change", lambda _: None, lambda new: services._set("default/own", new))
            found.append(steps(put, made))
            assert bool(list(directory.names_of_address(address(1)))) == (made is headless)
        remove = Case("deletion", lambda _: None, lambda old: services._remove("default/own", old))
        return [*found, steps(remove, headless)]

    assert toggle(1) == toggle(10)


def test_a_slice_costs_a_few_addresses_of_each_endpoint_and_a_few_of_its_ports() -> None:
    def change(addresses_count: int, ports_count: int) -> int:
        slices = Informer(MemoryAPI().client(), discovery_v1.EndpointSlice)
        InformerDirectory(Informer(MemoryAPI().client(), core_v1.Service), slices)
        made = slice_of("own", endpoint(address(1)), ports={f"p{n}": n for n in range(1, ports_count)})
        made.endpoints[0].addresses = [address(n) for n in range(addresses_count)]
        return steps(Case("change", lambda _: None, lambda new: slices._set("default/own", new)), made)

    change(10, 2)  # what is made once and kept does not count
    assert change(100, 2) <= change(10, 2) + 50
    assert change(1, 6000) <= change(1, 3000) + 500


def test_a_question_with_many_additional_records_costs_a_few() -> None:
    def question(count: int) -> bytes:
        plain = dns.message.make_query("web.default.svc.cluster.local", "A", use_edns=False).to_wire()
        return plain[:10] + count.to_bytes(2, "big") + plain[12:] + (b"\0" + bytes(10)) * count

    read = Case("question", lambda _: b"", wire.parse_query)
    assert steps(read, question(10)) == steps(read, question(5000))
