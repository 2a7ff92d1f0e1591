"""What the IPVS mode does with real packets on a kernel that has it; run there by tests/vm/test_ipvs.py.

Each check prints "ok" or "FAILED" and its name. Emulated processors are slow, so limits are long.
"""

import asyncio
import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

from netproxy import main, proxy
from tests.host.netproxy.conftest import CLIENT_IP, NODE_IP, PODS, Site, build_site, populated, running, until
from tests.support.services import endpoint, port, service, slice_of

WEB, LIMIT = "10.96.5.1", 120.0
NODE_PORT = port("http", 80, node_port=30080)


def fetch(site: Site, origin: str, address: str, number: int = 80) -> str:
    """Return what answers; "" where nobody does, or where the machine was too slow to say."""
    namespace = {"node": site.node, "client": site.client, **site.pods}[origin]
    with contextlib.suppress(subprocess.TimeoutExpired):
        return site.fetch(namespace, address, number, 10)
    return ""


async def fetched(site: Site, origin: str, address: str, number: int = 80) -> str:
    return await asyncio.to_thread(fetch, site, origin, address, number)


async def everybody(site: Site, origin: str, address: str, number: int = 80) -> None:
    seen: set[str] = set()
    for _ in range(30):
        seen.add(await fetched(site, origin, address, number))
        if seen == set(PODS):
            return
    raise AssertionError(f"{origin} at {address}:{number} was answered by {seen} alone")


async def check(site: Site) -> None:
    here, there = endpoint(PODS["pod-a"], node="node-1"), endpoint(PODS["pod-b"], node="node-2")
    both = slice_of("web", here, endpoint(PODS["pod-b"], node="node-1"))
    api = populated(service("web", WEB, NODE_PORT, type="NodePort"), both)
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
            await until(lambda: WEB not in site.node.run("ipvsadm", "-Ln"), "the virtual server goes", LIMIT)
            assert WEB not in site.node.run("ip", "address") + site.node.run("ipset", "save")

        for each in (ways, refusals, local, affinity, nobody, repair, gone):
            await report(each.__name__, each())

    async def cleanup() -> None:
        await main.cleanup(site.config, everything=True)
        assert site.node.run("ipset", "save") == ""
        left = site.node.run("iptables-nft-save") + site.node.run("ip", "link") + site.node.run("ipvsadm", "-Ln")
        assert not [word for word in left.split() if "KUBE" in word or "kube-ipvs0" in word or ":30080" in word], left

    await report("cleanup", cleanup())


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
        site.node.inside(lambda: body(site), timeout=1500)  # type: ignore[arg-type, return-value]


if __name__ == "__main__":
    run(check)
