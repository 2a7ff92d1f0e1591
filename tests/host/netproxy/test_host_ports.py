"""Host ports of pods (the CNI plugin portmap) leave cluster DNS and the ports of Services to those who have them."""

import asyncio
import contextlib
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import pytest

from netproxy.podnet.dns_guard import DNSGuard
from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, serve_http, until
from tests.host.netproxy.test_podnet import cni
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces
from tests.support.services import endpoint, node, port, service, slice_of

NODE_IP6, CLIENT_IP6, DNS_IPS = "fd00:77::1", "fd00:77::2", ("10.96.0.10", "fd00:96::a")
POD_B6 = "fd00:244:1::3"
NODE = node("node-1", "10.244.1.0/24", NODE_IP, cidr6="fd00:244:1::/64")

pytestmark = pytest.mark.parametrize("site", ["nft", "legacy", "nftables"], indirect=True)


@pytest.fixture
def other(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Namespace]:
    """The network namespace of a further pod; the site has both families, and portmap writes to the proxy's tables."""
    programs = site.folder / "programs"
    programs.mkdir()
    for name in ("iptables", "ip6tables"):
        (programs / name).symlink_to(shutil.which(f"{name}-{site.config.iptables_flavour}") or "")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    site.config = replace(
        site.config,
        cluster_cidrs=("10.244.0.0/16", "fd00:244::/32"),
        service_cidrs=("10.96.0.0/12", "fd00:96::/112"),
        dns=replace(site.config.dns, addresses=DNS_IPS),
    )
    site.node.run("ip", "address", "add", "fd00:244:1::1/64", "dev", "cni0", "nodad")
    site.node.run("ip", "address", "add", f"{NODE_IP6}/64", "dev", "uplink", "nodad")
    site.client.run("ip", "address", "add", f"{CLIENT_IP6}/64", "dev", "eth0", "nodad")
    for address, each in zip(("fd00:244:1::2", POD_B6), site.pods.values(), strict=True):
        each.run("ip", "address", "add", f"{address}/64", "dev", "eth0", "nodad")
        each.run("ip", "-6", "route", "add", "default", "via", "fd00:244:1::1")
    state = site.folder / "cni" / "wherry"
    state.mkdir(parents=True)
    for taken in (*PODS.values(), "fd00:244:1::2", POD_B6):
        (state / taken).write_text("test")  # host-local does not know the test's own pods
    with namespaces(f"{site.node.name}-other") as (made,):
        made.run("ip", "link", "set", "lo", "up")
        yield made


@contextlib.asynccontextmanager
async def with_host_ports(site: Site, pod: Namespace, *mappings: dict[str, Any]) -> AsyncIterator[None]:
    """The pod has these host ports in the kernel for the length of the block."""
    path = site.folder / "net.d" / "10-wherry.conflist"
    await until(path.exists, "the CNI configuration is written")
    conflist = json.loads(path.read_text())
    await asyncio.to_thread(cni, "ADD", conflist, site.node, pod, portMappings=list(mappings))
    try:
        yield
    finally:
        await asyncio.to_thread(cni, "DEL", conflist, site.node, pod, portMappings=list(mappings))


def host_port(number: int, protocol: str = "tcp", to: int = 8080, **more: str) -> dict[str, Any]:
    return {"hostPort": number, "containerPort": to, "protocol": protocol, **more}


def resolve(origin: Namespace, server: str, *, tcp: bool = False) -> str:
    """Return the address of the Service web, as this server has it, or the error's name."""
    program = (
        "import dns.resolver\n"
        f"r = dns.resolver.Resolver(configure=False); r.nameservers = [{server!r}]; r.lifetime = 5\n"
        f"try: print(r.resolve('web.default.svc.cluster.local', tcp={tcp}, search=False)[0].to_text())\n"
        "except Exception as e: print(type(e).__name__)\n"
    )
    return origin.run(sys.executable, "-c", program).strip()


FALSE_DNS = """
import dns.message, dns.rrset, socket
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(("::", 5353))
while True:
    data, peer = s.recvfrom(4096)
    response = dns.message.make_response(dns.message.from_wire(data))
    response.answer.append(dns.rrset.from_text(response.question[0].name, 5, "IN", "A", "6.6.6.6"))
    s.sendto(response.to_wire(), peer)
"""


@pytest.mark.parametrize("host_ip", [{}, {"hostIP": DNS_IPS[0]}], ids=["every address", "its address"])
def test_cluster_dns_is_not_taken_by_a_host_port(site: Site, other: Namespace, host_ip: dict[str, str]) -> None:
    async def check() -> None:
        mappings = [host_port(53, "udp", 5353, **host_ip), host_port(53, "tcp", 5353, **host_ip)]
        async with running(site.config, populated(NODE, service("web", "10.96.5.1"))):
            await until(lambda: resolve(site.node, DNS_IPS[0]) == "10.96.5.1", "the name is resolved")
            async with with_host_ports(site, other, *mappings):
                other.start(sys.executable, "-c", FALSE_DNS)
                if not host_ip:
                    # From outside, where only the host port has the port: it is reached.
                    for address in (NODE_IP, NODE_IP6):
                        await until(
                            lambda address=address: resolve(site.client, address) == "6.6.6.6",  # type: ignore[misc]
                            "the host port is reached",
                        )
                for origin in (site.pods["pod-a"], site.node):
                    for server in DNS_IPS:
                        for tcp in (False, True):
                            found = await asyncio.to_thread(resolve, origin, server, tcp=tcp)
                            assert found == "10.96.5.1", (origin.name, server, tcp)

    site.node.inside(check)


def test_the_table_of_cluster_dns_is_not_written_again_for_others_changes(site: Site) -> None:
    """nft lists priorities by other names than it is given."""

    async def check() -> None:
        guard = DNSGuard(DNS_IPS, "cni0")
        assert await guard.verify()
        before = site.node.run("nft", "-a", "list", "table", "inet", "wherry-dns")
        site.node.run("nft", "add", "table", "inet", "another")
        assert await guard.verify()
        assert site.node.run("nft", "-a", "list", "table", "inet", "wherry-dns") == before

    site.node.inside(check)


def web(**more: Any) -> Any:
    return service(
        "web",
        "10.96.5.1",
        port("http", 80, node_port=30080),
        namespace="victim",
        type="LoadBalancer",
        ips=["10.96.5.1", "fd00:96::1"],
        ingress=(NODE_IP, NODE_IP6),
        **more,
    )


def its_slices(*, empty: bool = False) -> list[Any]:
    return [
        slice_of("web", *([] if empty else [PODS["pod-b"]]), namespace="victim"),
        slice_of(
            "web",
            *([] if empty else [endpoint(POD_B6)]),
            namespace="victim",
            suffix="six",
            address_type="IPv6",
        ),
    ]


async def served(site: Site, origin: Namespace) -> set[str]:
    """Return what is served at the Service's ports of the node's addresses, as seen from there."""
    found = set()
    for address in (NODE_IP, f"[{NODE_IP6}]"):
        for number in (30080, 80):
            found.add(await asyncio.to_thread(site.fetch, origin, address, number, 2))
    return found


def test_ports_of_services_are_not_taken_by_a_host_port(site: Site, other: Namespace) -> None:
    async def check(api: MemoryAPI) -> None:
        async with running(site.config, api):
            await until(lambda: site.fetch(site.client, f"[{NODE_IP6}]", 30080) == "pod-b", "the Service is served")
            await until(lambda: site.fetch(site.client, NODE_IP, 80) == "pod-b", "over IPv4, too")
            # With ip6tables-legacy portmap 1.1 writes a pod's first port only.
            async with with_host_ports(site, other, *map(host_port, (30081, 30080, 80))):
                await asyncio.to_thread(serve_http, other, site.folder / "other", "other")
                for address in (NODE_IP, f"[{NODE_IP6}]"):
                    await until(
                        lambda address=address: site.fetch(site.client, address, 30081) == "other",  # type: ignore[misc]
                        "a port that no Service has reaches the host port",
                    )
                for origin in (site.client, site.pods["pod-a"], site.node):
                    assert await served(site, origin) == {"pod-b"}, origin.name

    site.node.inside(lambda: check(populated(NODE, web(), *its_slices())))


@pytest.mark.parametrize("local", [False, True], ids=["without endpoints", "without local ones"])
def test_ports_of_services_that_are_not_served_are_not_taken(site: Site, other: Namespace, local: bool) -> None:
    """Nor is the port of health checks, which the node answers."""
    more = {"external_traffic_policy": "Local", "health_check_node_port": 31999} if local else {}
    slices = its_slices(empty=True)
    if local:
        slices = [slice_of("web", endpoint("10.244.9.2", node="node-9"), namespace="victim")]
        slices.append(
            slice_of(
                "web",
                endpoint("fd00:244:9::2", node="node-9"),
                namespace="victim",
                suffix="six",
                address_type="IPv6",
            )
        )

    async def check(api: MemoryAPI) -> None:
        async with running(site.config, api):
            async with with_host_ports(site, other, *map(host_port, (30081, 30080, 80, 31999))):
                await asyncio.to_thread(serve_http, other, site.folder / "other", "other")
                await until(lambda: site.fetch(site.client, NODE_IP, 30081) == "other", "the host port is reached")
                refused = "ETIMEDOUT" if local else "ECONNREFUSED"
                await until(lambda: site.error(site.client, NODE_IP, 80) == refused, "the Service is refused")
                assert await served(site, site.client) == {""}
                if local:
                    for address in (NODE_IP, f"[{NODE_IP6}]"):
                        answer = await asyncio.to_thread(site.fetch, site.client, address, 31999)
                        assert '"localEndpoints": 0' in answer, (address, answer)

    site.node.inside(lambda: check(populated(NODE, web(**more), *slices)))
