"""Both IP families at once, each with its own rules."""

import asyncio
import dataclasses

from tests.host.netproxy.conftest import NODE_IP, PODS, Site, populated, running, until
from tests.support.services import endpoint, node, port, service, slice_of

SIX = {"pod-a": "fd00:244:1::2", "pod-b": "fd00:244:1::3"}


def test_a_dual_stack_service_answers_on_both_addresses(site: Site) -> None:
    async def check() -> None:
        site.node.run("ip", "address", "add", "fd00:244:1::1/64", "dev", "cni0", "nodad")
        site.node.run("ip", "address", "add", "fd00:77::1/64", "dev", "uplink", "nodad")
        site.client.run("ip", "address", "add", "fd00:77::2/64", "dev", "eth0", "nodad")
        for name, pod in site.pods.items():
            pod.run("ip", "address", "add", f"{SIX[name]}/64", "dev", "eth0", "nodad")
            pod.run("ip", "route", "add", "default", "via", "fd00:244:1::1")
        config = dataclasses.replace(
            site.config,
            cluster_cidrs=("10.244.0.0/16", "fd00:244::/32"),
            service_cidrs=("10.96.0.0/12", "fd00:96::/112"),
        )
        web = service(
            "web",
            "10.96.5.1",
            port("http", 80, node_port=30080),
            type="NodePort",
            ips=["10.96.5.1", "fd00:96::1"],
            session_affinity="ClientIP",
        )
        api = populated(
            node("node-1", "10.244.1.0/24", NODE_IP, cidr6="fd00:244:1::/64"),
            web,
            slice_of("web", *PODS.values()),
            slice_of("web", *map(endpoint, SIX.values()), suffix="six", address_type="IPv6"),
            service("none", "10.96.5.2", ips=["10.96.5.2", "fd00:96::2"]),
        )
        async with running(config, api):
            await until(lambda: site.fetch(site.node, "10.96.5.1").startswith("pod-"), "the host reaches it over IPv4")
            await until(lambda: site.fetch(site.node, "[fd00:96::1]").startswith("pod-"), "and over IPv6")
            await until(lambda: site.fetch(site.pods["pod-a"], "[fd00:96::1]").startswith("pod-"), "a pod, too")
            await until(lambda: site.fetch(site.client, "[fd00:77::1]", 30080).startswith("pod-"), "its node port, too")
            assert await asyncio.to_thread(site.error, site.node, "fd00:96::2") == "ECONNREFUSED"
            assert await asyncio.to_thread(site.error, site.pods["pod-a"], "fd00:96::9") == "ECONNREFUSED"
            api.put(slice_of("web", SIX["pod-b"], suffix="six", address_type="IPv6"))
            await until(
                lambda: {site.fetch(site.node, "[fd00:96::1]") for _ in range(6)} == {"pod-b"}, "only one is left"
            )

    site.node.inside(check)
