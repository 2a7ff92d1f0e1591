"""The site of tests/host on the machine, with addresses of both families, and who answers there."""

import asyncio
import contextlib
import subprocess

from tests.host.netproxy.conftest import PODS, Site

LIMIT = 120.0
SIX = {"pod-a": "fd00:244:1::2", "pod-b": "fd00:244:1::3"}
PODS_SIX = "fd00:244:1::/64"
NODE_SIX, CLIENT_SIX = "fd00:77::1", "fd00:77::2"


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


def give_second_family(site: Site) -> None:
    site.node.run("ip", "address", "add", "fd00:244:1::1/64", "dev", "cni0", "nodad")
    site.node.run("ip", "address", "add", f"{NODE_SIX}/64", "dev", "uplink", "nodad")
    site.client.run("ip", "address", "add", f"{CLIENT_SIX}/64", "dev", "eth0", "nodad")
    for name, pod in site.pods.items():
        pod.run("ip", "address", "add", f"{SIX[name]}/64", "dev", "eth0", "nodad")
        pod.run("ip", "route", "add", "default", "via", "fd00:244:1::1")
