"""Latency probes: time the requests of well-behaved clients while an attack of bench/hostile.py continues.

python -m bench.hostile_probes KUBECONFIG SECONDS TARGETS IMAGE PROBE...        prints each probe's times in seconds

livez       GET /livez on a new connection, as systemd or a load balancer sends it
lease       a node's lease is renewed
pod         a pod, from the call that creates it until it is Ready
healthz     GET /healthz of the kubelet on a new connection
proxy       GET /healthz of the proxy on a new connection
dns         a query for a Service's name over UDP
dns_tcp     the same over TCP, on a new connection
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import sys
import time
from collections.abc import Awaitable, Callable

import uvloop

from bench.hostile_attacks import Targets, question, unchecked
from bench.inside import Pods, is_ready, pod_spec, watching
from kube import kubeconfig
from kube.api import coordination_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM, format_micro_time
from kube.errors import StatusError
from kube.transport import HttpsTransport

LIMIT = 30.0
"""Seconds after which a probe has failed; it counts as so many."""
NAME = "kubernetes.default.svc.cluster.local"


class Probes:
    def __init__(self, client: Client, access: kubeconfig.Access, targets: Targets, image: str) -> None:
        self.client, self.targets, self.image = client, targets, image
        self.certified = access.ssl_context()
        self.certified.check_hostname = False
        self.certified.verify_mode = ssl.CERT_NONE
        self.nobody = unchecked()
        self.lease: coordination_v1.Lease | None = None
        self.pods: Pods | None = None
        self.number = 0

    async def _http(self, place: tuple[str, int], path: str, tls: ssl.SSLContext | None) -> None:
        reader, writer = await asyncio.open_connection(*place, ssl=tls)
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
            if not (await reader.readline()).startswith(b"HTTP/1.1 200 "):
                raise OSError("no 200")
            await reader.read()
        finally:
            writer.close()

    async def livez(self) -> None:
        await self._http(self.targets.api, "/livez", self.nobody)

    async def healthz(self) -> None:
        await self._http(self.targets.kubelet, "/healthz", self.certified)

    async def proxy(self) -> None:
        await self._http(self.targets.proxy, "/healthz", None)

    async def renew(self) -> None:
        if self.lease is None:
            meta = meta_v1.ObjectMeta(name=f"probe-{time.time_ns()}", namespace="kube-node-lease")
            self.lease = await self.client.create(coordination_v1.Lease(metadata=meta))
        self.lease.spec.renew_time = format_micro_time(SYSTEM.now())
        self.lease = await self.client.update(self.lease)

    async def pod(self) -> None:
        assert self.pods is not None
        self.number += 1
        name = f"probe-{time.time_ns()}"
        pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace="bench"), spec=pod_spec(self.image))
        await self.client.create(pod)
        await self.pods.until(lambda found: any(p.metadata.name == name and is_ready(p) for p in found), LIMIT)
        await self.client.delete(core_v1.Pod, name, "bench", grace_period_seconds=0)

    async def dns(self) -> None:
        self.number += 1
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
            made.setblocking(False)
            made.connect(self.targets.dns)
            message = question(self.number, NAME)
            while True:  # as resolvers do: after a while once more
                await loop.sock_sendall(made, message)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        if (await loop.sock_recv(made, 4096))[:2] == message[:2]:
                            return

    async def dns_tcp(self) -> None:
        reader, writer = await asyncio.open_connection(*self.targets.dns)
        try:
            message = question(1, NAME)
            writer.write(struct.pack("!H", len(message)) + message)
            (length,) = struct.unpack("!H", await reader.readexactly(2))
            await reader.readexactly(length)
        finally:
            writer.close()


async def repeat(once: Callable[[], Awaitable[None]], pause: float, seconds: float) -> list[float]:
    """Return how long each took; one that fails is retried, as its client would, and its time continues."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        while time.perf_counter() - began < LIMIT:
            with contextlib.suppress(OSError, StatusError, asyncio.IncompleteReadError):
                async with asyncio.timeout(LIMIT):
                    await once()
                break
            await asyncio.sleep(0.05)
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(pause)
    return taken


async def main() -> None:
    path, seconds, given, image, *wanted = sys.argv[1:]
    targets = Targets(**{k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(given).items()})
    access = kubeconfig.load(path)
    client = Client(HttpsTransport(access))
    probes = Probes(client, access, targets, image)
    ways: dict[str, tuple[Callable[[], Awaitable[None]], float]] = {
        "livez": (probes.livez, 0.05),
        "lease": (probes.renew, 0.05),
        "pod": (probes.pod, 0.05),
        "healthz": (probes.healthz, 0.05),
        "proxy": (probes.proxy, 0.02),
        "dns": (probes.dns, 0.01),
        "dns_tcp": (probes.dns_tcp, 0.02),
    }
    try:
        async with contextlib.AsyncExitStack() as stack:
            if "pod" in wanted:
                probes.pods = await stack.enter_async_context(watching(client))
            for name in wanted:  # what is done the first time alone is nobody's measure
                await repeat(ways[name][0], 0, 0.01)
            found = await asyncio.gather(*(repeat(*ways[name], float(seconds)) for name in wanted))
    finally:
        await client.close()
    print(json.dumps(dict(zip(wanted, found, strict=True))))


if __name__ == "__main__":
    uvloop.run(main())
