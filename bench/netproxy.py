"""The service proxy alone: cold start and one change, beside so many other Services; and cluster DNS's queries a second.

Run as root: `python bench/netproxy.py [--services 0 1000 5000] [--flavour nft|legacy|nftables]`. Everything happens in two
network namespaces of its own. The API is in memory, so the figures are the proxy's and the kernel's: `change_s` runs from
the moment a Service and its slice are there until a connection to its cluster IP is answered by the endpoint.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from netproxy import main as role
from netproxy.config import DNSConfig, PodNetworkConfig, ProxyConfig
from netproxy.dns import wire
from tests.support import services
from tests.support.memory_api import MemoryAPI
from tests.support.netns import Namespace, namespaces
from tests.support.netns import wire as join

POD = "10.244.1.2"
CHANGES = 10


def address(number: int) -> str:
    return f"10.{97 + (number >> 16)}.{number >> 8 & 255}.{number & 255}"


def populate(api: MemoryAPI, count: int) -> None:
    api.put(services.node("bench", "10.244.1.0/24", "192.168.77.1"))
    for number in range(count):
        name = f"other-{number}"
        api.put(services.service(name, address(number)))
        api.put(services.slice_of(name, f"10.244.{2 + number % 200}.{1 + number // 200}"))


async def answers(ip: str, deadline: float = 30) -> float:
    """Return the moment at which a connection to `ip`:80 was answered with the endpoint's word."""
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + deadline
    while time.perf_counter() < end:
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.setblocking(False)
            try:
                async with asyncio.timeout(0.2):
                    await loop.sock_connect(sock, (ip, 80))
                    if await loop.sock_recv(sock, 10) == b"pod":
                        return time.perf_counter()
            except TimeoutError:
                pass
        await asyncio.sleep(0.0005)
    raise SystemExit(f"{ip} was not answered in {deadline} s")


async def one_size(count: int, config: ProxyConfig) -> dict[str, float | int]:
    api = MemoryAPI()
    populate(api, count)
    api.put(services.service("first", "10.111.0.1"))
    api.put(services.slice_of("first", POD))
    began = time.perf_counter()
    task = asyncio.create_task(role.run(config, api.client()))
    try:
        cold = await answers("10.111.0.1", 60) - began
        await asyncio.sleep(1)
        latencies = []
        for number in range(CHANGES):
            ip = f"10.110.0.{number + 1}"
            began = time.perf_counter()
            api.put(services.service(f"new-{number}", ip))
            api.put(services.slice_of(f"new-{number}", POD))
            latencies.append(await answers(ip) - began)
            await asyncio.sleep(0.05)
        rate = await asyncio.to_thread(queries_per_second)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return {
        "services": count,
        "cold_s": round(cold, 3),
        "change_p50_s": round(statistics.median(latencies), 4),
        "change_max_s": round(max(latencies), 4),
        "dns_queries_per_s": rate,
    }


def queries_per_second(seconds: float = 1.0, window: int = 64) -> int:
    """Ask for one name from this process, so many questions under way at once; client and server share the cores."""
    question = wire.encode_name("first.default.svc.cluster.local") + b"\x00\x01\x00\x01"
    packets = [bytes([0, n]) + b"\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00" + question for n in range(window)]
    program = (
        "import socket, sys, time\n"
        f"packets, seconds = {packets!r}, {seconds}\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.96.0.10', 53)); s.settimeout(1)\n"
        "done, end = 0, time.perf_counter() + seconds\n"
        "while time.perf_counter() < end:\n"
        "    for packet in packets: s.send(packet)\n"
        "    for _ in packets: s.recv(512)\n"
        "    done += len(packets)\n"
        "print(int(done / seconds))\n"
    )
    import subprocess

    return int(subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True).stdout)


def run(counts: list[int], flavour: str) -> dict[str, object]:
    results = []
    for count in counts:
        with (
            tempfile.TemporaryDirectory() as folder,
            namespaces(f"np-b{os.getpid()}", f"np-p{os.getpid()}") as (node, pod),
        ):
            wire_up(node, pod)
            config = ProxyConfig(
                hostname_override="bench",
                cluster_cidrs=("10.244.0.0/16",),
                mode="nftables" if flavour == "nftables" else "iptables",
                iptables_flavour="nft" if flavour == "nftables" else flavour,
                dns=DNSConfig(resolv_conf="/dev/null"),
                pod_network=PodNetworkConfig(cni_conf_dir=folder, cni_data_dir=folder),
            )
            results.append(node.inside(lambda count=count, config=config: one_size(count, config), timeout=120))  # type: ignore[misc]
    return {"benchmark": "netproxy", "flavour": flavour, "results": results}


def wire_up(node: Namespace, pod: Namespace) -> None:
    join(node, "pod", pod, "eth0")
    node.run("ip", "address", "add", "10.244.1.1/24", "dev", "pod")
    node.run("ip", "link", "add", "uplink", "type", "veth", "peer", "name", "uplink2")
    node.run("ip", "address", "add", "192.168.77.1/24", "dev", "uplink")
    node.run("ip", "link", "set", "uplink", "up")
    pod.run("ip", "address", "add", f"{POD}/24", "dev", "eth0")
    pod.run("ip", "route", "add", "default", "via", "10.244.1.1")
    server = (
        "import socket\n"
        "s = socket.create_server(('', 8080), backlog=100)\n"
        "while True:\n"
        "    c, _ = s.accept(); c.sendall(b'pod'); c.close()\n"
    )
    pod.start(sys.executable, "-I", "-c", server)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--services", type=int, nargs="+", default=[0, 1000, 5000])
    arguments.add_argument("--flavour", choices=("nft", "legacy", "nftables"), default="nft")
    given = arguments.parse_args()
    print(json.dumps(run(given.services, given.flavour), indent=1))
