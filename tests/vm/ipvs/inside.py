"""The IPVS mode with real packets on a kernel that has it; run there by tests/vm/test_ipvs.py.

Each check prints "ok" or "FAILED" and its name. Emulated processors are slow, so limits are long.
"""

import asyncio
import dataclasses
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from netproxy import proxy
from netproxy.cleanup import cleanup as remove
from netproxy.config import IPVSConfig, ProxyConfig
from netproxy.ipvs.backend import IPVSBackend
from netproxy.ipvs.kernel import RealKernel
from netproxy.xtables.writer import RestoreWriter
from tests.host.netproxy.conftest import (
    CLIENT_IP,
    NODE_IP,
    PODS,
    Site,
    build_site,
    populated,
    running,
    talk,
    until,
    until_echo,
)
from tests.support.memory_api import MemoryAPI
from tests.support.packet_cases import FIXED, IPVS_OTHERWISE, RULES
from tests.support.packet_site import wrong_packets
from tests.support.services import endpoint, node, port, service, slice_of
from tests.vm.ipvs.machine_site import LIMIT, NODE_SIX, PODS_SIX, SIX, everybody, fetch, fetched, give_second_family
from tests.vm.ipvs.policies import policies
from tests.vm.ipvs.tunnel import tunnel

WEB = "10.96.5.1"
NODE_PORT = port("http", 80, node_port=30080)


async def check(site: Site) -> None:
    here, there = endpoint(PODS["pod-a"], node="node-1"), endpoint(PODS["pod-b"], node="node-2")
    both = slice_of("web", here, endpoint(PODS["pod-b"], node="node-1"))
    api = populated(service("web", WEB, NODE_PORT, type="NodePort"), both)
    give_second_family(site)
    api.put(
        node("node-1", "10.244.1.0/24", NODE_IP, cidr6=PODS_SIX)
    )  # pods send with addresses of the node's ranges alone
    site.config = configured(site.config)
    async with running(site.config, api):
        await until(lambda: fetch(site, "node", WEB), "the proxy serves", LIMIT)

        async def ways() -> None:
            for origin in ("node", *PODS):
                await everybody(site, origin, WEB)  # pods among their own endpoints: hairpin
            await everybody(site, "client", NODE_IP, 30080)

        async def refusals() -> None:
            for namespace in (site.node, site.pods["pod-a"]):
                for address, number in ((WEB, 81), ("10.111.0.1", 80)):
                    assert site.error(namespace, address, number) == "ECONNREFUSED", (address, number)

        async def local() -> None:
            api.put(slice_of("web", here, there))
            api.put(service("web", WEB, NODE_PORT, type="NodePort", external_traffic_policy="Local"))
            servers = ("ipvsadm", "-Ln", "-t", f"{NODE_IP}:30080")
            await until(lambda: PODS["pod-b"] not in site.node.run(*servers).replace("Masq    0", ""), "alone", LIMIT)
            for _ in range(5):
                assert await fetched(site, "client", NODE_IP, 30080) in ("pod-a", "")
            flows = site.node.run("conntrack", "-L", "-p", "tcp", "--orig-port-dst", "30080")
            assert f"src={PODS['pod-a']} dst={CLIENT_IP}" in flows, flows  # answers go to the client itself: no SNAT

        async def affinity() -> None:
            api.put(service("web", WEB, NODE_PORT, type="NodePort", session_affinity="ClientIP"))
            await until(lambda: "persistent 10800" in site.node.run("ipvsadm", "-Ln"), "persistence", LIMIT)
            assert len({await fetched(site, "pod-a", WEB) for _ in range(8)} - {""}) == 1

        async def nobody() -> None:
            api.put(slice_of("web"))
            await until(
                lambda: site.error(site.pods["pod-a"], WEB) == "ECONNREFUSED", "refused without endpoints", LIMIT
            )
            api.put(slice_of("web", here))
            await until(lambda: fetch(site, "pod-b", WEB) == "pod-a", "answered again", LIMIT)

        async def repair() -> None:
            site.node.run("ipvsadm", "--clear")
            await until(lambda: fetch(site, "node", WEB) == "pod-a", "virtual servers are back", LIMIT)
            site.node.run("iptables-nft", "-t", "nat", "-F")
            await until(
                lambda: "KUBE-SERVICES" in site.node.run("iptables-nft-save", "-t", "nat"), "rules are back", LIMIT
            )

        async def gone() -> None:
            api.remove(service("web", WEB))
            listings = (("ip", "address"), ("ipvsadm", "-Ln"), ("ipset", "save"))
            await until(lambda: WEB not in "".join(site.node.run(*each) for each in listings), "all of it goes", LIMIT)

        for each in (ways, refusals, local, affinity, nobody, repair, gone):
            await report(each.__name__, each())
        for each in (dual_stack, policies, graceful_end, settings):
            await report(each.__name__, each(site, api))
    await report("schedulers", schedulers(site, api))
    await report("tunnel", tunnel(site, api))

    async def cleanup() -> None:
        await remove(site.config, everything=True)
        sets = site.node.run("ipset", "save")
        assert sets == "", sets
        left = site.node.run("iptables-nft-save") + site.node.run("ip", "link") + site.node.run("ipvsadm", "-Ln")
        assert not [word for word in left.split() if "KUBE" in word or "kube-ipvs0" in word or ":30080" in word], left

    await report("cleanup", cleanup())
    await report("packets", packets())


def configured(config: ProxyConfig) -> ProxyConfig:
    """Both families, and everything that the `ipvs` section can say."""
    ipvs = IPVSConfig(
        exclude_cidrs=("192.168.77.0/24",), strict_arp=True, tcp_timeout=901, tcp_fin_timeout=121, udp_timeout=301
    )
    pods, services = (*config.cluster_cidrs, "fd00:244::/32"), (*config.service_cidrs, "fd00:96::/112")
    return dataclasses.replace(config, cluster_cidrs=pods, service_cidrs=services, ipvs=ipvs)


async def dual_stack(site: Site, api: MemoryAPI) -> None:
    two = service("two", "10.96.5.2", NODE_PORT, type="NodePort", ips=["10.96.5.2", "fd00:96::2"])
    api.put(two)
    api.put(slice_of("two", *PODS.values()))
    api.put(slice_of("two", *SIX.values(), suffix="six", address_type="IPv6"))
    for origin in ("node", "pod-a"):
        await until(lambda origin=origin: fetch(site, origin, "[fd00:96::2]"), f"{origin} over IPv6", LIMIT)  # type: ignore[misc]
        await until(lambda origin=origin: fetch(site, origin, "10.96.5.2"), f"{origin} over IPv4", LIMIT)  # type: ignore[misc]
    await everybody(site, "pod-a", "[fd00:96::2]")
    await until(lambda: fetch(site, "client", f"[{NODE_SIX}]", 30080), "the client over IPv6", LIMIT)
    assert site.error(site.node, "fd00:96::2", 81) == "ECONNREFUSED"
    api.put(slice_of("two", suffix="six", address_type="IPv6"))
    await until(lambda: site.error(site.pods["pod-a"], "fd00:96::2") == "ECONNREFUSED", "nobody over IPv6", LIMIT)


async def graceful_end(site: Site, api: MemoryAPI) -> None:
    """An endpoint that is gone has weight 0 and keeps its connection until that ends."""
    await until_echo(site, "pod-a")
    api.put(service("echo", "10.96.5.3"))
    api.put(slice_of("echo", PODS["pod-a"], ports={"http": 7777}))
    await until(lambda: site.error(site.pods["pod-b"], "10.96.5.3") == "", "the echo Service answers", LIMIT)
    count = talk(site, site.pods["pod-b"], "10.96.5.3", 80)
    await until(lambda: count() > 2, "the connection is used", LIMIT)

    def weights() -> list[str]:
        listed = site.node.run("ipvsadm", "-Ln", "-t", "10.96.5.3:80").splitlines()
        return [line.split()[3] for line in listed if "->" in line and "7777" in line]

    api.put(slice_of("echo", PODS["pod-b"], ports={"http": 7778}))
    await until(lambda: weights() == ["0"], "weight 0", LIMIT)
    before = count()
    await until(lambda: count() > before + 2, "the open connection goes on", LIMIT)
    site.pods["pod-b"]._processes[-1].kill()
    await until(lambda: weights() == [], "the endpoint goes when its connections have ended", 400)


async def settings(site: Site, api: MemoryAPI) -> None:
    assert "901 121 301" in site.node.run("ipvsadm", "-l", "--timeout")
    for name, value in (("arp_ignore", "1"), ("arp_announce", "2")):
        assert site.node.run("cat", f"/proc/sys/net/ipv4/conf/all/{name}").strip() == value
    site.node.run("ipvsadm", "-A", "-t", f"{NODE_IP}:9999", "-s", "rr")
    await asyncio.sleep(5)
    await until(lambda: fetch(site, "client", NODE_IP, 30080), "ours in an excluded range are served", LIMIT)
    assert f"{NODE_IP}:9999" in site.node.run("ipvsadm", "-Ln")


async def packets() -> None:
    """The packet table, in namespaces of its own."""
    proxy = IPVSBackend(RealKernel(), RestoreWriter("nft"), RULES, FIXED)
    wrong = await asyncio.to_thread(wrong_packets, proxy, IPVS_OTHERWISE, localhost=False, silence=2)
    assert not wrong, "\n".join(wrong)


async def schedulers(site: Site, api: MemoryAPI) -> None:
    """The role is started anew with each; what an earlier life wrote gets the new one's flags."""
    for scheduler, flags, shown in (
        ("mh", (), "-s mh -b mh-port"),
        ("sh", ("sh-fallback", "sh-port"), "-s sh -b sh-fallback,sh-port"),
        ("wlc", (), "-s wlc"),
    ):
        ipvs = dataclasses.replace(site.config.ipvs, scheduler=scheduler, scheduler_flags=flags)
        async with running(dataclasses.replace(site.config, ipvs=ipvs), api):
            line = f"-A -t 10.96.5.2:80 {shown}"
            await until(lambda line=line: line in site.node.run("ipvsadm", "-Sn"), shown, LIMIT)  # type: ignore[misc]
            await until(lambda: fetch(site, "node", "10.96.5.2"), f"{scheduler} serves", LIMIT)
    site.node.run("ipvsadm", "-D", "-t", f"{NODE_IP}:9999")


async def report(name: str, work: Awaitable[None]) -> None:
    try:
        await work
    except (AssertionError, subprocess.SubprocessError) as error:
        print(f"FAILED {name}: {error}", flush=True)
    else:
        print(f"ok {name}", flush=True)


def run(body: Callable[[Site], Awaitable[None]]) -> None:
    proxy.CHECK_PERIOD = 1.0
    folder = Path(tempfile.mkdtemp())
    with build_site("ipvs", folder) as site:
        site.node.inside(lambda: body(site), timeout=2200)  # type: ignore[arg-type, return-value]


if __name__ == "__main__":
    run(check)
