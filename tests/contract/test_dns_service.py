"""The Service of cluster DNS in the API: written once, mended where an older release wrote it, left where it is another's."""

from pathlib import Path

import msgspec

from kube.api import core_v1, discovery_v1, meta_v1
from kube.client import Client
from tests.support.control import api_server
from wherry import dns_service
from wherry.option_checks import complete
from wherry.settings import Settings

SETTINGS = complete(
    Settings(service_cidr="10.96.0.0/16,fd00:96::/112", pod_cidr="10.244.0.0/16,fd00:244::/56"), "192.0.2.1,fd99::11"
)


async def slices(client: Client) -> dict[str, tuple[str, list[str]]]:
    found = (await client.list(discovery_v1.EndpointSlice, "kube-system")).items
    return {each.metadata.name or "": (each.address_type, each.endpoints[0].addresses) for each in found}


WANTED = {"kube-dns": ("IPv4", ["10.96.0.10"]), "kube-dns-ipv6": ("IPv6", ["fd00:96::a"])}


async def test_the_service_and_a_slice_a_family_name_the_address_that_every_node_has(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr=SETTINGS.service_cidr) as api:
        client = api.client()
        await dns_service.ensure(client, SETTINGS)
        service = await client.get(core_v1.Service, "kube-dns", "kube-system")
        assert service.spec.cluster_ips == ["10.96.0.10", "fd00:96::a"]
        assert await slices(client) == WANTED
        before = await client.list(discovery_v1.EndpointSlice, "kube-system")
        await dns_service.ensure(client, SETTINGS)
        assert (await client.list(discovery_v1.EndpointSlice, "kube-system")).items == before.items


async def test_slices_that_name_a_nodes_address_are_written_anew(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr=SETTINGS.service_cidr) as api:
        client = api.client()
        await dns_service.ensure(client, SETTINGS)
        for name in WANTED:
            await client.delete(discovery_v1.EndpointSlice, name, "kube-system")
        for name, family, address in (("kube-dns", "IPv6", "2001:db8::1"), ("kube-dns-ipv6", "IPv6", "2001:db8::1")):
            await client.create(slice_of(name, family, address, manager="wherry"))
        await dns_service.ensure(client, SETTINGS)
        assert await slices(client) == WANTED


async def test_a_dns_of_the_operators_own_is_left_as_it_is(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr=SETTINGS.service_cidr) as api:
        client = api.client()
        await dns_service.ensure(client, SETTINGS)
        for name in WANTED:
            await client.delete(discovery_v1.EndpointSlice, name, "kube-system")
        service = await client.get(core_v1.Service, "kube-dns", "kube-system")
        spec = msgspec.structs.replace(service.spec, selector={"k8s-app": "coredns"})
        await client.update(msgspec.structs.replace(service, spec=spec))
        await dns_service.ensure(client, SETTINGS)
        assert await slices(client) == {}
        await client.create(slice_of("kube-dns", "IPv4", "10.244.0.9", manager="endpointslice-controller.k8s.io"))
        await dns_service.ensure(client, SETTINGS)
        assert await slices(client) == {"kube-dns": ("IPv4", ["10.244.0.9"])}


async def test_a_dns_of_the_operators_own_gets_the_name_and_the_address(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr=SETTINGS.service_cidr) as api:
        client = api.client()
        await dns_service.remove(client)
        await dns_service.ensure(client, SETTINGS)
        await dns_service.remove(client)
        assert await slices(client) == {}
        spec = core_v1.ServiceSpec(
            cluster_ip="10.96.0.10", selector={"k8s-app": "kube-dns"}, ports=[core_v1.ServicePort(name="dns", port=53)]
        )
        metadata = meta_v1.ObjectMeta(name="kube-dns", namespace="kube-system")
        await client.create(core_v1.Service(metadata=metadata, spec=spec))
        await client.create(slice_of("theirs", "IPv4", "10.244.0.9", manager="endpointslice-controller.k8s.io"))
        await client.create(slice_of("kube-dns", "IPv4", "10.96.0.10", manager="wherry"))
        await dns_service.remove(client)
        assert (await client.get(core_v1.Service, "kube-dns", "kube-system")).spec.cluster_ip == "10.96.0.10"
        assert await slices(client) == {"theirs": ("IPv4", ["10.244.0.9"])}, "nodes answer at that address no more"


async def test_a_service_without_selector_that_is_not_wherrys_is_left(tmp_path: Path) -> None:
    async with api_server(tmp_path, service_cidr=SETTINGS.service_cidr) as api:
        client = api.client()
        metadata = meta_v1.ObjectMeta(name="kube-dns", namespace="kube-system")
        spec = core_v1.ServiceSpec(cluster_ip="10.96.0.10", ports=[core_v1.ServicePort(name="dns", port=53)])
        await client.create(core_v1.Service(metadata=metadata, spec=spec))
        await client.create(slice_of("by-hand", "IPv4", "192.0.2.53", manager="admin"))
        await dns_service.remove(client)
        assert (await client.get(core_v1.Service, "kube-dns", "kube-system")).spec.cluster_ip == "10.96.0.10"
        assert await slices(client) == {"by-hand": ("IPv4", ["192.0.2.53"])}


def slice_of(name: str, family: str, address: str, *, manager: str) -> discovery_v1.EndpointSlice:
    labels = {"kubernetes.io/service-name": "kube-dns", "endpointslice.kubernetes.io/managed-by": manager}
    return discovery_v1.EndpointSlice(
        metadata=meta_v1.ObjectMeta(name=name, namespace="kube-system", labels=labels),
        address_type=family,
        endpoints=[discovery_v1.Endpoint(addresses=[address])],
        ports=[],
    )
