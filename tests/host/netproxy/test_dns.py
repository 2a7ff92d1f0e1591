"""Cluster DNS on its own address, asked by real resolvers from a pod and from the node."""

import asyncio
import json
import sys

import pytest

from tests.host.netproxy.conftest import PODS, Site, populated, running, until
from tests.support.services import endpoint, service, slice_of

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
