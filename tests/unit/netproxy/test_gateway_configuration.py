"""Ports and routes of a node's gateway, as the objects of the API change."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
from collections.abc import AsyncIterator, Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from kube import pki
from kube.api import core_v1, discovery_v1, meta_v1, networking_v1
from kube.clock import SYSTEM
from kube.gateway import names
from kube.gateway.cluster import Cluster
from kube.gateway.computation import Result
from kube.gateway.ingress_hosts import record
from kube.gateway.names import CONTROLLER
from kube.gateway.objects import Gateway, GatewayClass
from kube.informer import Informer
from kube.step_limit import sampling
from netproxy.gateway import api, configuration, routing
from netproxy.gateway.configuration import Configuration
from netproxy.gateway.errors import Refused
from netproxy.gateway.listening import Place, Served
from netproxy.gateway.request import RoutedRequest
from netproxy.gateway.request_target import RequestTarget
from netproxy.gateway.tls_contexts import TlsContexts
from tests.support import services
from tests.support.gateways import gateway, ingress, ingress_rule, listener, made, parent, route, service
from tests.support.memory_api import MemoryAPI

NODE = "192.0.2.1"


class Recorder:
    """Stands for the sockets: records what is to be served."""

    def __init__(self) -> None:
        self.wanted: dict[Place, Served] = {}
        self.unsettled = False
        self.calls = 0

    def set(self, wanted: dict[Place, Served]) -> None:
        self.wanted = wanted
        self.calls += 1

    @property
    def ports(self) -> list[tuple[str, int, bool]]:
        return sorted((place.address, place.port, place.tls) for place in self.wanted)


def slice_of(uid: str, ports: dict[int, int]) -> discovery_v1.EndpointSlice:
    """Return the slice of a Gateway with a UID of this form: private ports by listeners' ports."""
    _, namespace, name = uid.split("-", 2) if uid != names.INGRESS else ("", "", "")
    owner = f"{namespace}/{name}" if name else uid
    return discovery_v1.EndpointSlice(
        metadata=meta_v1.ObjectMeta(
            name=names.generated(uid),
            namespace=names.NAMESPACE,
            labels={names.UID: uid},
            annotations={names.OWNER: owner},
        ),
        address_type="IPv4",
        ports=[discovery_v1.EndpointPort(name=names.port_name(port), port=number) for port, number in ports.items()],
    )


def secret(name: str) -> core_v1.Secret:
    """Return the copy of a certificate."""
    now = datetime.now(UTC)
    pair = pki.issue(pki.new_ca("ca", now), name, usages=(pki.SERVER,), sans=(name,), now=now)
    data = {"tls.crt": pair.cert_pem, "tls.key": pair.key_pem}
    return core_v1.Secret(
        metadata=meta_v1.ObjectMeta(
            name=names.copy_of("infra", name),
            namespace=names.NAMESPACE,
            annotations={names.CERTIFICATE: f"infra/{name}"},
        ),
        data={key: base64.b64encode(value).decode() for key, value in data.items()},
    )


class Site:
    """A configuration that follows an API in memory."""

    def __init__(self) -> None:
        self.api, self.recorder = MemoryAPI(), Recorder()
        self.api.put(services.node("node-1", "10.244.1.0/24", NODE))
        self.put(
            made(GatewayClass, "wherry", "", {"controllerName": CONTROLLER}),
            core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="infra")),
            service(),
        )

    def put(self, *objects: Any) -> None:
        for each in objects:
            self.api.put(each)

    async def until(self, *ports: tuple[str, int, bool]) -> None:
        """Wait until exactly these places are to be served."""
        async with asyncio.timeout(5):
            while self.recorder.ports != list(ports):
                await asyncio.sleep(0.01)

    async def until_owned(self, host: str, namespace: str) -> None:
        """Wait until a namespace serves a host."""
        async with asyncio.timeout(5):
            while not any(
                each.routes and each.routes.owner(host) == namespace for each in self.recorder.wanted.values()
            ):
                await asyncio.sleep(0.01)

    async def until_served(self, host: str) -> None:
        """Wait until a host has a rule for the path /."""
        request = RoutedRequest("GET", RequestTarget(host, host, "/", ""), [])
        async with asyncio.timeout(5):
            while not any(_has_rule(each, request) for each in self.recorder.wanted.values()):
                await asyncio.sleep(0.01)


def _has_rule(served: Served, request: RoutedRequest) -> bool:
    if served.routes is None:
        return False
    try:
        served.routes.find(request, None)
    except Refused:
        return False
    return True


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setattr(configuration, "LEAST", 0.001)
    found = Site()
    client = found.api.client()
    built = dataclasses.replace(api.build(client, "node-1", SYSTEM), certificates=Informer(client, core_v1.Secret))
    built = dataclasses.replace(built, hosts=Informer(client, core_v1.ConfigMap))
    tasks = [asyncio.create_task(each.run()) for each in built.informers]
    for each in built.informers:
        await each.wait_synced()
    tasks.append(asyncio.create_task(Configuration(built, found.recorder, SYSTEM).run()))  # type: ignore[arg-type]
    yield found
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_gateway_is_served_at_its_private_ports_until_it_is_deleted(site: Site) -> None:
    web = gateway(listener(), listener("more", 8080))
    uid = web.metadata.uid or ""
    site.put(web, route(), slice_of(uid, {80: 61000, 8080: 61001, 9090: 61002}))
    await site.until((NODE, 61000, False), (NODE, 61001, False))

    site.put(slice_of(uid, {80: 61000}))
    await site.until((NODE, 61000, False))
    site.api.remove(web)
    await site.until()


async def test_a_gateway_is_computed_only_while_it_has_private_ports(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, computed = Cluster.compute, []

    async def recorded(self: Cluster, each: Gateway) -> Result:
        computed.append(each.metadata.name)
        return await compute(self, each)

    monkeypatch.setattr(Cluster, "compute", recorded)
    refused, served = gateway(listener(), name="a"), gateway(listener(), name="b")
    site.put(refused, served, route(), slice_of(served.metadata.uid or "", {80: 61000}))
    await site.until((NODE, 61000, False))
    assert "a" not in computed
    site.put(slice_of(refused.metadata.uid or "", {80: 61001}))
    await site.until((NODE, 61000, False), (NODE, 61001, False))
    assert "a" in computed


async def test_a_port_with_tls_is_served_once_its_certificate_is_there(site: Site) -> None:
    secure = gateway(listener("https", 443, "HTTPS", hostname="a.example.com"))
    site.put(secure, slice_of(secure.metadata.uid or "", {443: 61000}))
    site.put(secret("cert"))
    await site.until((NODE, 61000, True))
    (served,) = site.recorder.wanted.values()
    async with asyncio.timeout(5):
        while "a.example.com" not in served.contexts:
            await asyncio.sleep(0.01)
            (served,) = site.recorder.wanted.values()


async def test_ingresses_are_served_by_the_built_in_gateway(site: Site) -> None:
    site.put(
        ingress(ingress_rule("a.example.com")),
        made(networking_v1.IngressClass, "wherry", "", {"controller": CONTROLLER}),
        slice_of(names.INGRESS, {80: 61000, 443: 61001}),
    )
    await site.until((NODE, 61000, False))


async def test_a_host_is_served_for_its_recorded_namespace_whatever_older_ingress_names_it(site: Site) -> None:
    site.put(
        service(namespace="apps"),
        ingress(ingress_rule("a.example.com"), namespace="apps", created="2025-01-01T00:00:00Z"),
        ingress(ingress_rule("a.example.com")),
        made(networking_v1.IngressClass, "wherry", "", {"controller": CONTROLLER}),
        slice_of(names.INGRESS, {80: 61000}),
    )
    await site.until_owned("a.example.com", "apps")

    site.put(record("infra", "a.example.com"))
    await site.until_owned("a.example.com", "infra")


async def test_long_paths_of_one_namespace_stop_the_ingresses_of_no_other_one(site: Site) -> None:
    """Neither of one that is served already, nor of one that comes later."""
    site.put(
        service(namespace="apps"),
        made(networking_v1.IngressClass, "wherry", "", {"controller": CONTROLLER}),
        slice_of(names.INGRESS, {80: 61000}),
        record("infra", "a.example.com\nb.example.com"),
        record("apps", "c.example.com"),
        ingress(ingress_rule("a.example.com")),
    )
    with sampling():
        await site.until_owned("a.example.com", "infra")
        for number in range(3):
            long = ingress_rule("c.example.com", "/" + " " * 1_400_000)
            site.put(ingress(long, name=f"long{number}", namespace="apps"))
        site.put(ingress(ingress_rule("b.example.com"), name="later"))
        await site.until_served("b.example.com")
        await site.until_served("a.example.com")


async def test_slices_of_other_namespaces_open_no_ports(site: Site) -> None:
    web = gateway()
    foreign = slice_of(web.metadata.uid or "", {80: 6443})
    foreign.metadata.namespace = "infra"
    site.put(web, foreign, slice_of(web.metadata.uid or "", {80: 61000}))
    await site.until((NODE, 61000, False))


async def test_a_gateway_that_cannot_be_computed_affects_no_other_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = Cluster.compute

    async def failing(self: Cluster, found: Any) -> Any:
        if found.metadata.name == "a-broken":
            raise RuntimeError("a fault")
        return await compute(self, found)

    monkeypatch.setattr(Cluster, "compute", failing)
    broken, web = gateway(name="a-broken"), gateway(name="web")
    site.put(
        broken, web, slice_of(broken.metadata.uid or "", {80: 61001}), slice_of(web.metadata.uid or "", {80: 61000})
    )
    await site.until((NODE, 61000, False))


async def test_what_is_computed_for_one_namespace_delays_no_other_one(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compute, never = Cluster.compute, asyncio.Event()

    async def slow(self: Cluster, found: Any) -> Any:
        if found.metadata.name == "slow":
            await never.wait()
        return await compute(self, found)

    monkeypatch.setattr(Cluster, "compute", slow)
    evil = [gateway(name=name, namespace="evil") for name in ("first", "slow")]
    evil[0].metadata.creation_timestamp = "2025-01-01T00:00:00Z"
    web = gateway()
    ports = {each.metadata.uid or "": 61000 + number for number, each in enumerate((web, *evil))}
    site.put(*evil, *(slice_of(uid, {80: port}) for uid, port in ports.items()))
    await site.until((NODE, 61001, False))
    site.put(web)
    await site.until((NODE, 61000, False), (NODE, 61001, False))


async def test_only_gateways_that_exist_are_computed_when_a_service_of_their_routes_changes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered, by_age, results = set[str](), Cluster.by_age, asyncio.Queue[Result]()
    compute = Cluster.compute

    def recorded(self: Cluster, keys: Iterable[str]) -> list[str]:
        ordered.update(keys)
        return by_age(self, keys)

    async def computed(self: Cluster, each: Gateway) -> Result:
        await results.put(result := await compute(self, each))
        return result

    async def until_reachable(*, reachable: bool) -> None:
        async with asyncio.timeout(5):
            while True:
                found = await results.get()
                backends = [
                    each.service
                    for listener in found.served
                    for one in listener.routes
                    for rule in one.rules
                    for each in rule.backends
                ]
                if len(backends) == 1 and bool(backends[0]) is reachable:
                    return

    monkeypatch.setattr(Cluster, "by_age", recorded)
    monkeypatch.setattr(Cluster, "compute", computed)
    web = gateway()
    parents = [parent(), *(parent(f"absent{number}") for number in range(31))]
    site.put(web, route(parents=parents), slice_of(web.metadata.uid or "", {80: 61000}))
    await until_reachable(reachable=True)
    site.put(service(port=81))
    await until_reachable(reachable=False)
    site.put(service())
    await until_reachable(reachable=True)
    assert ordered <= {"infra/web", "infra/", names.INGRESS}


async def test_a_gateway_without_ports_of_the_node_has_nothing_compiled(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    async def compile_listeners(listeners: Any, ingresses: Any) -> Any:
        compiled.append(listeners)
        return await routing.compile_listeners(listeners, ingresses)

    monkeypatch.setattr(configuration, "compile_listeners", compile_listeners)
    refused, web = gateway(name="a-refused"), gateway()
    site.put(refused, web, slice_of(web.metadata.uid or "", {80: 61000}))
    await site.until((NODE, 61000, False))
    assert len(compiled) == 1
    site.put(slice_of(refused.metadata.uid or "", {80: 61001}))
    await site.until((NODE, 61000, False), (NODE, 61001, False))


async def test_a_gateway_whose_certificates_wait_is_computed_again_once_in_a_while_however_often_it_changed(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "CERTIFICATES_SECONDS", 0.2)
    loop, computed = asyncio.get_running_loop(), list[float]()

    async def waiting(*_: object) -> tuple[dict[Any, Any], bool]:
        computed.append(loop.time())
        return {}, False

    monkeypatch.setattr(TlsContexts, "of", waiting)
    async with asyncio.timeout(10):
        for number in range(8):
            secure = gateway(listener("https", 443, "HTTPS", hostname=f"host-{number}.example.com"))
            site.put(secure, slice_of(secure.metadata.uid or "", {443: 61000}))
            before = len(computed)
            while len(computed) == before:
                await asyncio.sleep(0.001)
        before = len(computed)
        while len(computed) < before + 3:
            await asyncio.sleep(0.01)
        assert all(later - earlier > 0.19 for earlier, later in pairwise(computed[before:]))
        site.api.remove(secure)
        await site.until()
