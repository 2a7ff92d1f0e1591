"""Services as their users feel them, in every proxy mode, beside so many other Services.

Run as root: `python -m bench.svc [--services 0 1000 5000 10000] [--flavours nft legacy nftables]`. Everything happens in two
network namespaces of its own. `create` runs from the moment a Service and its slice are in the API until a connection to its
cluster IP is answered by the endpoint, `pod_ready` from a slice that gains its first endpoint, `first_packet` is a
connection through the cluster IP (`direct`: to the pod itself). `create_cpu` is CPU time, with the asking client's.
Prints one JSON object; seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import time

from bench import signals
from bench.proxy_site import FLAVOURS, POD, Site, Stopwatch, populate, site
from netproxy import main as role
from tests.support import services
from tests.support.memory_api import MemoryAPI

CHANGES = 7
CONNECTIONS = 60
FIRST = "10.111.0.1"


async def answers(ip: str, port: int = 80, deadline: float = 30) -> float:
    """Return the moment at which a connection was answered with the endpoint's word."""
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + deadline
    while time.perf_counter() < end:
        with contextlib.suppress(OSError), socket.socket() as sock:
            sock.setblocking(False)
            try:
                async with asyncio.timeout(0.2):
                    await loop.sock_connect(sock, (ip, port))
                    if await loop.sock_recv(sock, 10) == b"pod":
                        return time.perf_counter()
            except TimeoutError:
                pass
        await asyncio.sleep(0.0005)
    raise SystemExit(f"{ip} was not answered in {deadline} s")


async def one_size(place: Site, count: int) -> dict[str, float | int | str]:
    api = MemoryAPI()
    populate(api, count)
    api.put(services.service("first", FIRST))
    api.put(services.slice_of("first", POD))
    began = time.perf_counter()
    task = asyncio.create_task(role.run(place.config, api.client()))
    created, ready, used = [], [], []
    try:
        cold = await answers(FIRST, deadline=60) - began
        await asyncio.sleep(1)  # what follows the start: the pod network, a look at the rules
        for number in range(CHANGES):
            ip = f"10.110.0.{number + 1}"
            watch, began = Stopwatch(), time.perf_counter()
            api.put(services.service(f"new-{number}", ip))
            api.put(services.slice_of(f"new-{number}", POD))
            created.append(await answers(ip) - began)
            used.append(watch.read()[1])
            api.put(services.slice_of(f"new-{number}"))
            await refused(ip)
            began = time.perf_counter()
            api.put(services.slice_of(f"new-{number}", POD))
            ready.append(await answers(ip) - began)
        through, direct = await asyncio.to_thread(lambda: (connect(FIRST, 80), connect(POD, 8080)))
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return {
        "services": count,
        "cold": round(cold, 3),
        **spread("create", created),
        "create_cpu": round(statistics.median(used), 4),
        **spread("pod_ready", ready),
        "first_packet_p50": round(through, 6),
        "direct_p50": round(direct, 6),
    }


def spread(name: str, values: list[float]) -> dict[str, float]:
    return {f"{name}_p50": round(statistics.median(values), 4), f"{name}_max": round(max(values), 4)}


async def refused(ip: str) -> None:
    """Wait until connections are refused: nobody is there."""
    for _ in range(2000):
        with socket.socket() as sock:
            sock.settimeout(1)
            try:
                await asyncio.to_thread(sock.connect, (ip, 80))
            except ConnectionRefusedError:
                return
            except OSError:
                pass
        await asyncio.sleep(0.002)
    raise SystemExit(f"{ip} is still answered")


def connect(ip: str, port: int) -> float:
    """Return how long a new connection takes from the first packet to the answer to it, in the middle of many."""
    taken = []
    for _ in range(CONNECTIONS):
        with socket.socket() as sock:
            sock.settimeout(2)
            began = time.perf_counter()
            sock.connect((ip, port))
            taken.append(time.perf_counter() - began)
            sock.recv(10)
    return statistics.median(taken)


def run(counts: list[int], flavours: list[str]) -> dict[str, object]:
    results = []
    for flavour in flavours:
        for count in counts:
            with site(flavour) as place:
                found = place.inside(lambda count=count, place=place: one_size(place, count))  # type: ignore[misc]
            results.append({"mode": flavour, **found})
    return {"benchmark": "svc", "results": results}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--services", type=int, nargs="+", default=[0, 1000, 5000, 10000])
    arguments.add_argument("--flavours", nargs="+", choices=FLAVOURS, default=list(FLAVOURS))
    given = arguments.parse_args()
    signals.end_in_order()
    print(json.dumps(run(given.services, given.flavours), indent=1))
