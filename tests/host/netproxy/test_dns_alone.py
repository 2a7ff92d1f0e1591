"""Cluster DNS in a process without a service proxy: beside one that programs its Service's rules, and beside none."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from kube.api import discovery_v1, meta_v1
from netproxy import without_services
from netproxy.cleanup import cleanup
from netproxy.config import ProxyConfig
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, populated, running, serve_http, until
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace
from tests.support.services import service

DNS = "10.96.0.10"


def ask(origin: Namespace, *, tcp: bool = False) -> list[str]:
    """Ask for the Service `web`; return the answers' texts, or the error's name."""
    program = (
        "import dns.resolver, json\n"
        f"r = dns.resolver.Resolver(configure=False); r.nameservers = [{DNS!r}]; r.lifetime = 5\n"
        f"try: print(json.dumps([x.to_text() for x in r.resolve('web.default.svc.cluster.local', tcp={tcp})]))\n"
        "except Exception as e: print(json.dumps([type(e).__name__]))\n"
    )
    found: list[str] = json.loads(origin.run(sys.executable, "-c", program))
    return found


def rules(site: Site) -> str:
    """Return what the kernel translates, in every mode's words."""
    commands = [["nft", "list", "ruleset"], ["iptables-legacy-save"]]
    commands += [["ipvsadm", "-Ln"]] if site.config.mode == "ipvs" else []
    return "".join(site.node.run(*each, check=False) for each in commands)


def dns_slice() -> discovery_v1.EndpointSlice:
    """The slice of kube-dns as `wherry up` writes it: the cluster DNS address itself."""
    return discovery_v1.EndpointSlice(
        metadata=meta_v1.ObjectMeta(
            name="kube-dns", namespace="kube-system", labels={"kubernetes.io/service-name": "kube-dns"}
        ),
        address_type="IPv4",
        endpoints=[
            discovery_v1.Endpoint(addresses=[DNS], conditions=discovery_v1.EndpointConditions(ready=True, serving=True))
        ],
        ports=[
            discovery_v1.EndpointPort(name="dns", port=53, protocol="UDP"),
            discovery_v1.EndpointPort(name="dns-tcp", port=53, protocol="TCP"),
        ],
    )


@contextlib.asynccontextmanager
async def dns_alone(config: ProxyConfig, api: MemoryAPI, *, pod_network: bool) -> AsyncIterator[None]:
    """Run the process without a proxy for the length of the block."""
    settings = replace(
        config,
        services=False,
        metrics_bind_address="127.0.0.1:9153",
        pod_network=replace(config.pod_network, enabled=pod_network),
    )
    started = asyncio.Event()
    task = asyncio.create_task(without_services.run(settings, api.client(), ready=started.set), name="DNS under test")
    try:
        async with asyncio.timeout(60):
            await started.wait()
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def test_names_are_answered_through_the_rules_of_another_proxy(site: Site) -> None:
    async def check() -> None:
        api = populated(service("web", "10.96.5.1"), dns_slice())
        another = replace(site.config, dns=replace(site.config.dns, enabled=False))
        async with running(another, api), dns_alone(site.config, api, pod_network=False):
            # Rules for the address are in force: from here on every question is translated.
            await until(lambda: DNS in rules(site), "the proxy has rules for cluster DNS")
            for origin in (site.pods["pod-a"], site.node):
                for tcp in (False, True):
                    await until(lambda o=origin, t=tcp: ask(o, tcp=t) == ["10.96.5.1"], f"{origin} is answered")
            own = "127.0.0.1:9153"
            assert await asyncio.to_thread(site.fetch_path, site.node, f"{own}/healthz") == "ok"
            assert "wherry_dns_queries" in await asyncio.to_thread(site.fetch_path, site.node, f"{own}/metrics")
            api.put(service("web", "10.96.5.77"))
            await until(lambda: ask(site.pods["pod-a"]) == ["10.96.5.77"], "the answer follows")

    site.node.inside(check)


@pytest.mark.parametrize("site", ["nft"], indirect=True)
def test_pods_have_a_network_and_names_where_no_proxy_of_ours_runs(site: Site) -> None:
    serve_http(site.client, site.folder / "outside", "outside")
    # What comes from a pod's own address finds no way back.
    site.client.run("ip", "route", "del", "default")

    async def check() -> None:
        api = populated(service("web", "10.96.5.1"))
        async with dns_alone(site.config, api, pod_network=True):
            await until(lambda: (site.folder / "net.d/10-wherry.conflist").exists(), "pods may start")
            assert await asyncio.to_thread(ask, site.pods["pod-a"]) == ["10.96.5.1"]
            assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], CLIENT_IP, 8080) == "outside"
            site.node.run("nft", "flush", "ruleset")
            await until(lambda: site.fetch(site.pods["pod-a"], CLIENT_IP, 8080, 2) == "outside", "it is put back")
            assert await asyncio.to_thread(site.fetch, site.pods["pod-a"], PODS["pod-b"], 8080) == "pod-b"
            assert "KUBE-" not in site.node.run("iptables-nft-save"), "Services are another's"
        await cleanup(site.config, everything=True)
        assert "wherry-pods" not in site.node.run("nft", "list", "ruleset")

    site.node.inside(check)
    assert NODE_IP in site.node.run("ip", "address")
