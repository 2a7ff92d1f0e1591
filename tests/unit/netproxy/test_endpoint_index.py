"""The indexes of endpoints and ports: the same as the slices say, after any changes, in bounded memory."""

import random
import sys
import time
import tracemalloc
import uuid

from hypothesis import given, settings
from hypothesis import strategies as st

from kube.api import core_v1, discovery_v1
from kube.informer import Informer
from netproxy.dns import endpoint_index, wire
from netproxy.dns.directory import InformerDirectory
from netproxy.dns.zone import Zone
from tests.support.memory_api import MemoryAPI
from tests.support.services import endpoint, port, service, slice_of
from tests.unit.netproxy.test_dns import DOMAIN, Directory

ADDRESSES = {
    "IPv4": ["10.244.0.1", "10.244.0.2", "10.244.0.3"],
    "IPv6": ["fd00::1", "FD00::A"],
    "FQDN": ["example.org"],
}
HOSTNAMES = [None, "db-0", "10-244-0-1", "DB-1"]
MX = 15
NAMES = ["a", "b", "c"]
LABELS = ["db-0", "db-1", "10-244-0-1", "10-244-0-2", "10-244-0-3", "fd00--1", "fd00--a", "made-up"]
PORTS = {"http": 80, "sql": 5432, "": 9, "none": 0}
PREFIXES = ["_http._tcp", "_sql._udp", "_tcp", "_udp", "_made-up._tcp", "_._tcp"]
QUESTIONS = [
    *(f"{prefix}.{name}.default.svc.{DOMAIN}" for prefix in PREFIXES for name in NAMES),
    *(f"{name}.default.svc.{DOMAIN}" for name in NAMES),
    *(f"{label}.{name}.default.svc.{DOMAIN}" for label in LABELS for name in NAMES),
    *(f"{last}.0.244.10.in-addr.arpa" for last in (1, 2, 3, 4)),
    "1." + "0." * 27 + "0.0.d.f.ip6.arpa",
]


class Cluster:
    """Services and slices that change at random."""

    def __init__(self, seed: int) -> None:
        self.chance, self.revision = random.Random(seed), 0
        self.services, self.slices = informers()
        self.directory = InformerDirectory(self.services, self.slices)

    def change(self) -> None:
        name, self.revision = self.chance.choice(NAMES), self.revision + 1
        if self.chance.random() < 0.3:
            self._service(name)
        else:
            self._slice(name, self.chance.choice("xyz"))

    def _service(self, name: str) -> None:
        made = self.chance.choice(
            [
                service(name, "None", ips=["None"]),
                service(name, "10.96.0.1"),
                service(name, "10.96.0.1", *self._many_ports()),
                service(name, "", type="ExternalName", external_name="x.org"),
            ]
        )
        self._apply(self.services, f"default/{name}", made)

    def _many_ports(self) -> list[core_v1.ServicePort]:
        some = [
            port(name, 80, self.chance.choice(["TCP", "UDP"])) for name in ("http", "sql") if self.chance.random() < 0.6
        ]
        return [*some, *(port(f"p{number}", 1000 + number) for number in range(self.chance.choice([1, 15, 20])))]

    def _slice(self, name: str, suffix: str) -> None:
        known = self.slices.get(f"default/{suffix}") if self.chance.random() < 0.5 else None
        family = known.address_type if known is not None else self.chance.choice(sorted(ADDRESSES))
        ips = ADDRESSES[family]
        ends = []
        for _ in range(self.chance.randrange(6)):
            end = endpoint(
                self.chance.choice(ips), hostname=self.chance.choice(HOSTNAMES), ready=self.chance.random() < 0.8
            )
            end.addresses = self.chance.sample(ips, self.chance.randrange(len(ips) + 1))
            ends.append(end)
        if known is not None:  # most endpoints stay
            place = self.chance.randrange(len(known.endpoints) + 1)
            ends = [*known.endpoints[:place], *ends[:1], *known.endpoints[place + self.chance.randrange(2) :]]
        ports = self.chance.sample(sorted(PORTS.items()), self.chance.randrange(1, 4))
        made = slice_of(name, *ends, suffix=suffix, address_type=family, ports=dict(ports))
        made.ports[0].protocol = self.chance.choice(["TCP", "UDP", None])
        # The label that names the Service may change, too.
        self._apply(self.slices, f"default/{suffix}", made)

    def _apply(self, informer: Informer, key: str, made: core_v1.Service | discovery_v1.EndpointSlice) -> None:  # type: ignore[type-arg]
        made.metadata.resource_version = str(self.revision)
        if isinstance(made, discovery_v1.EndpointSlice):
            made.metadata.name = key.split("/")[1]
        if self.chance.random() < 0.2:
            informer._remove(key, made)
        else:
            informer._set(key, made)


def informers() -> tuple[Informer[core_v1.Service], Informer[discovery_v1.EndpointSlice]]:
    client = MemoryAPI().client()
    return Informer(client, core_v1.Service), Informer(client, discovery_v1.EndpointSlice)


def messages(zone: Zone) -> dict[tuple[str, int], object]:
    """Return what a zone answers to every question, whatever the order."""
    found: dict[tuple[str, int], object] = {}
    for name in QUESTIONS:
        for kind in (wire.A, wire.AAAA, wire.ANY, wire.PTR, wire.SRV, MX):
            answer = zone.answer(name, kind)
            found[name, kind] = answer and (answer.rcode, sorted(each.encode() for each in answer.answers))
    return found


def held(directory: InformerDirectory) -> tuple[object, ...]:
    """Return what an index holds, without the form that it holds it in."""
    index = directory._endpoints
    hosts = {
        (family, key, label): set(table.get(label))
        for family, tables in index._hosts.items()
        for key, table in tables.items()
        for label in table
    }
    ports = {key: {labels: dict(each) for labels, each in t.items()} for key, t in directory._ports._tables.items()}
    tables = {key: dict(table) for key, table in directory._service_ports._tables.items()}
    names = {
        ip: {(key, each) for key in index._owners.get(ip) for each in index._labels[key].get(ip)}
        for ip in index._owners
    }
    return tables, ports, hosts, names, index._headless, set(index._keys)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 1 << 32), changes=st.integers(1, 60))
def test_the_index_equals_the_slices_after_any_changes(seed: int, changes: int) -> None:
    cluster = Cluster(seed)
    for _ in range(changes):
        cluster.change()
    anew = InformerDirectory(cluster.services, cluster.slices)
    assert held(cluster.directory) == held(anew)
    plain = Directory(*cluster.services.list(), *cluster.slices.list())
    assert messages(Zone(cluster.directory, DOMAIN)) == messages(Zone(plain, DOMAIN))


def test_nothing_is_left_of_what_is_gone() -> None:
    cluster = Cluster(7)
    for _ in range(300):
        cluster.change()
    for informer in (cluster.services, cluster.slices):
        for key in tuple(informer.keys()):
            informer._remove(key, informer.get(key))  # type: ignore[arg-type]
    assert held(cluster.directory) == ({}, {}, {}, {}, set(), set())
    assert not any(cluster.directory._endpoints._hosts.values())


def test_an_endpoint_takes_a_bounded_number_of_bytes() -> None:
    services, slices = informers()
    directory = InformerDirectory(services, slices)
    made = []
    for number in range(200):
        name = f"same-{number}"
        services._set(f"default/{name}", service(name, "None", ips=["None"]))
        made.append(slice_of(name, *(f"10.244.0.{last}" for last in range(1, 101))))
    tracemalloc.start()
    for each in made:
        slices._set(f"default/{each.metadata.name}", each)
    taken = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(list(directory.names_of_address("10.244.0.1"))) == 200
    assert taken / 20_000 < 300


class CountedSet(set[str]):
    """A set that counts look-ups, also those from C."""

    lookups = 0

    def __contains__(self, key: object) -> bool:
        self.lookups += 1
        return super().__contains__(key)


def seconds(directory: InformerDirectory, address: str) -> float:
    """Return the least CPU time of looking for the first name of an address."""
    found = []
    for _ in range(5):
        began = time.thread_time()
        next(iter(directory.names_of_address(address)), None)
        found.append(time.thread_time() - began)
    return min(found)


def test_any_number_of_host_names_of_an_address_cost_a_lookup_nothing() -> None:
    services, slices = informers()
    directory = InformerDirectory(services, slices)
    for number in range(50):
        ends = (endpoint("192.0.2.7", hostname=f"h{number}-{each}") for each in range(1000))
        slices._set(f"tenant/own-{number}", slice_of("own", *ends, suffix=str(number)))
    assert seconds(directory, "192.0.2.7") < 0.0005
    assert not list(directory.names_of_address("192.0.2.7"))
    services._set("default/own", service("own", "None", ips=["None"]))
    assert len(list(directory.names_of_address("192.0.2.7"))) == 50_000
    assert seconds(directory, "192.0.2.7") < 0.0005


def test_a_lookup_of_an_address_checks_a_bounded_number_of_services() -> None:
    services, slices = informers()
    directory = InformerDirectory(services, slices)
    for number in range(3 * endpoint_index.MAX_SERVICES):
        name = f"own-{number}"
        slices._set(f"default/{name}", slice_of(name, "192.0.2.7"))
    directory._endpoints._headless = counted = CountedSet()
    assert not list(directory.names_of_address("192.0.2.7"))
    assert 0 < counted.lookups <= endpoint_index.MAX_SERVICES


def test_names_of_clients_are_not_interned() -> None:
    """The first releases of Python 3.12 never free interned strings."""
    services, slices = informers()
    InformerDirectory(services, slices)
    label, name = uuid.uuid4().hex, uuid.uuid4().hex
    slices._set("default/own", slice_of(name, endpoint("192.0.2.7", hostname=label), suffix="own"))
    for made in (f"{label}", f"default/{name}"):
        copy = "".join([*made])
        assert sys.intern(copy) is copy, "an equal one has been interned before"  # noqa: TID251
