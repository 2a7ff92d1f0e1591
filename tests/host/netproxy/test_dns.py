"""Cluster DNS on its own address, asked by real resolvers from a pod and from the node."""

import asyncio
import json
import sys
from dataclasses import replace

import pytest

from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, until
from tests.support.netns import Namespace
from tests.support.services import endpoint, node, service, slice_of

pytestmark = pytest.mark.parametrize("site", ["nft"], indirect=True)


def ask(site: Site, name: str, kind: str = "A", *, tcp: bool = False) -> list[str]:
    """Ask from a pod with dnspython's stub resolver; return the answers' texts, or the error's name."""
    program = (
        "import dns.resolver, json\n"
        "r = dns.resolver.Resolver(configure=False); r.nameservers = ['10.96.0.10']; r.lifetime = 15\n"
        f"try: print(json.dumps([x.to_text() for x in r.resolve({name!r}, {kind!r}, tcp={tcp}, search=False)]))\n"
        "except Exception as e: print(json.dumps([type(e).__name__]))\n"
    )
    found: list[str] = json.loads(site.pods["pod-a"].run(sys.executable, "-c", program))
    return found


def test_pods_resolve_services_over_udp_and_tcp_on_the_cluster_dns_address(site: Site) -> None:
    async def check() -> None:
        api = populated(
            service("web", "10.96.5.1"),
            service("db", "None", ips=["None"]),
            slice_of("db", endpoint(PODS["pod-a"], hostname="db-0"), endpoint(PODS["pod-b"], hostname="db-1")),
        )
        async with running(site.config, api):
            await until(lambda: ask(site, "web.default.svc.cluster.local") == ["10.96.5.1"], "the Service has its name")
            # Slices are followed apart from Services: their names may come a moment later.
            await until(
                lambda: sorted(ask(site, "db.default.svc.cluster.local")) == sorted(PODS.values()),
                "its pods have theirs",
            )
            found = await asyncio.gather(
                asyncio.to_thread(ask, site, "web.default.svc.cluster.local", tcp=True),
                asyncio.to_thread(ask, site, "db-1.db.default.svc.cluster.local"),
                asyncio.to_thread(ask, site, "_http._tcp.web.default.svc.cluster.local", "SRV"),
                asyncio.to_thread(ask, site, "1.5.96.10.in-addr.arpa", "PTR"),
                asyncio.to_thread(ask, site, "missing.default.svc.cluster.local"),
            )
            assert found == [
                ["10.96.5.1"],
                [PODS["pod-b"]],
                ["0 100 80 web.default.svc.cluster.local."],
                ["web.default.svc.cluster.local."],
                ["NXDOMAIN"],
            ]
            web = service("web", "10.96.5.77")
            api.put(web)
            await until(lambda: ask(site, "web.default.svc.cluster.local") == ["10.96.5.77"], "the answer follows")

    site.node.inside(check)


def test_busybox_nslookup_finds_a_service(site: Site) -> None:
    async def check() -> None:
        async with running(site.config, populated(service("web", "10.96.5.1"))):
            await until(
                lambda: (
                    "10.96.5.1"
                    in site.pods["pod-b"].run(
                        "busybox", "nslookup", "web.default.svc.cluster.local", "10.96.0.10", check=False
                    )
                ),
                "nslookup prints the address",
            )

    site.node.inside(check)


def asked_by(origin: Namespace, server: str = "10.96.0.10", *, tcp: bool = False) -> str:
    """Ask once with dnspython; return the answer's code, or the error's name."""
    program = (
        "import dns.message, dns.query, dns.rcode\n"
        "q = dns.message.make_query('web.default.svc.cluster.local', 'A')\n"
        f"try: print(dns.rcode.to_text(dns.query.{'tcp' if tcp else 'udp'}(q, {server!r}, timeout=2).rcode()))\n"
        "except Exception as e: print(type(e).__name__)\n"
    )
    return origin.run(sys.executable, "-c", program).strip()


DNS6 = "fd00:96::a"


def test_machines_of_the_nodes_network_get_no_answers(site: Site) -> None:
    """Pods of the node do, and programs in its own network, as host-network pods are."""
    config = replace(site.config, dns=replace(site.config.dns, addresses=("10.96.0.10", DNS6)))
    pod = site.pods["pod-a"]
    site.node.run("ip", "address", "add", "fd00:244:1::1/64", "dev", "cni0", "nodad")
    pod.run("ip", "address", "add", "fd00:244:1::2/64", "dev", "eth0", "nodad")
    pod.run("ip", "-6", "route", "add", "default", "via", "fd00:244:1::1")
    site.node.run("ip", "address", "add", "fd99::1/64", "dev", "uplink", "nodad")
    site.client.run("ip", "address", "add", "fd99::2/64", "dev", "eth0", "nodad")
    site.client.run("ip", "-6", "route", "add", "default", "via", "fd99::1")

    async def check() -> None:
        web = service("web", "10.96.5.1")
        both = node("node-1", "10.244.1.0/24", NODE_IP, cidr6="fd00:244:1::/64")
        async with running(config, populated(both, web)):
            for server in config.dns.addresses:
                await until(lambda server=server: asked_by(pod, server) == "NOERROR", "a pod is answered")  # type: ignore[misc]
                for tcp in (False, True):
                    assert await asyncio.to_thread(asked_by, site.node, server, tcp=tcp) == "NOERROR"
                    assert await asyncio.to_thread(asked_by, site.client, server, tcp=tcp) == "Timeout"
            await asyncio.to_thread(site.node.run, "nft", "flush", "table", "inet", "wherry-dns")
            await until(lambda: asked_by(site.client) == "Timeout", "the guard is repaired")
        others = replace(config, pod_network=replace(config.pod_network, enabled=False))
        async with running(others, populated(both, web)):
            await until(lambda: asked_by(site.client) == "NOERROR", "with another pod network sources are not known")

    site.node.inside(check)
