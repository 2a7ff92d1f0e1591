"""Cluster DNS: queries a second on one core, their latency, and how soon a record is right after its Service.

Run as root: `python -m bench.dns [--services 1000 10000]`, in network namespaces of its own. The load comes from another
process; the server's loop is held to one core, and its CPU time is read beside the wall's. `record` runs from the moment
a Service is in the API until its name is answered. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import time

from bench import signals
from bench.proxy_site import Site, populate, site
from netproxy import main as role
from netproxy.dns import wire
from tests.support import services
from tests.support.memory_api import MemoryAPI

SECONDS, WINDOW, SINGLE, CHANGES = 2.0, 64, 1000, 10
DNS = "10.96.0.10"
CORES = sorted(os.sched_getaffinity(0))
_LOAD = """
import json, os, socket, statistics, sys, time
os.sched_setaffinity(0, {cores})
packets, seconds, single = {packets!r}, {seconds}, {single}
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.connect(('10.96.0.10', 53)); s.settimeout(1)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
done, began = 0, time.perf_counter()
while time.perf_counter() - began < seconds:
    for packet in packets: s.send(packet)
    for _ in packets: s.recv(512)
    done += len(packets)
rate = done / (time.perf_counter() - began)
taken = []
for number in range(single):
    began = time.perf_counter()
    s.send(packets[number % len(packets)]); s.recv(512)
    taken.append(time.perf_counter() - began)
print(json.dumps([done, rate, statistics.median(taken), statistics.quantiles(taken, n=100)[98]]))
"""


def question(number: int, name: str) -> bytes:
    return (
        bytes([number >> 8, number & 255])
        + b"\x01\x00\x00\x01"
        + bytes(6)
        + wire.encode_name(name)
        + b"\x00\x01\x00\x01"
    )


def load(names: list[str]) -> tuple[int, float, float, float]:
    """Return how many were answered, a second, and the median and 99th percentile of one at a time."""
    packets = [question(number, names[number % len(names)]) for number in range(WINDOW)]
    program = _LOAD.format(packets=packets, seconds=SECONDS, single=SINGLE, cores=CORES[1:] or CORES)
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    count, rate, median, slow = json.loads(done.stdout)
    return count, rate, median, slow


def ask(name: str) -> bytes:
    """Return the answer to a question for a name's IPv4 address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1)
        sock.connect((DNS, 53))
        sock.send(question(7, name))
        return sock.recv(512)


def resolved(ip: str, name: str, deadline: float = 10) -> float:
    """Return the moment at which a name is answered with its address."""
    end = time.perf_counter() + deadline
    while time.perf_counter() < end:
        with contextlib.suppress(OSError):
            if ask(name).endswith(socket.inet_aton(ip)):
                return time.perf_counter()
        time.sleep(0.0005)
    raise SystemExit(f"{name} is not answered")


async def one_size(place: Site, count: int) -> dict[str, float | int]:
    api = MemoryAPI()
    populate(api, count)
    task = asyncio.create_task(role.run(place.config, api.client()))
    try:
        await asyncio.to_thread(resolved, "10.97.0.0", "other-0.default.svc.cluster.local", 60)
        await asyncio.sleep(1)
        names = [f"other-{number}.default.svc.cluster.local" for number in range(min(count, WINDOW))]
        began = time.thread_time()
        answered, rate, median, slow = await asyncio.to_thread(load, names)
        a_query = (time.thread_time() - began) / (answered + SINGLE)
        records = []
        for number in range(CHANGES):
            name, ip = f"fresh-{number}", f"10.110.0.{number + 1}"
            # Asked for before it is there, so that its denial is what the server keeps ready.
            await asyncio.to_thread(ask, f"{name}.default.svc.cluster.local")
            began = time.perf_counter()
            api.put(services.service(name, ip))
            records.append(await asyncio.to_thread(resolved, ip, f"{name}.default.svc.cluster.local") - began)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return {
        "services": count,
        "queries_per_s": round(rate),
        "server_cpu_us_a_query": round(a_query * 1e6, 1),
        "queries_a_core_second": round(1 / a_query),
        "latency_p50_s": round(median, 6),
        "latency_p99_s": round(slow, 6),
        "record_p50_s": round(statistics.median(records), 4),
        "record_max_s": round(max(records), 4),
    }


def run(counts: list[int]) -> dict[str, object]:
    results = []
    for count in counts:
        with site("nftables") as place:

            async def measured(count: int = count, place: Site = place) -> dict[str, float | int]:
                os.sched_setaffinity(0, {CORES[0]})  # this thread alone: the role's loop
                return await one_size(place, count)

            results.append(place.inside(measured))
    return {"benchmark": "dns", "results": results}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--services", type=int, nargs="+", default=[1000, 10000])
    given = arguments.parse_args()
    signals.end_in_order()
    print(json.dumps(run(given.services), indent=1))
