"""What a DNS question costs is what its answer holds: thousands of endpoints and ports of a Service are not gone through."""

from __future__ import annotations

import dns.message
import pytest

from kube.api import core_v1, discovery_v1
from kube.informer import Informer
from netproxy.dns.directory import InformerDirectory
from netproxy.dns.forward import Forwarder
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
def test_where_nothing_is_found_a_slice_is_looked_at_and_not_its_endpoints(name: str, kind: str) -> None:
    few, many = (cost(each, f"{name}.default.svc.cluster.local", kind) for each in (FEW, MANY))
    assert many - few <= 20 * (MANY - FEW) // PER_SLICE


def test_an_address_that_many_services_share_gives_no_more_names_than_there_is_room_for() -> None:
    answer = SERVERS[MANY]._zone.answer("1.0.245.10.in-addr.arpa", 12, 32)
    assert answer is not None and len(answer.answers) == 32
