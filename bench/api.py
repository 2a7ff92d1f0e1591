"""The API server over TLS: gets, lists, creates and updates, the time an update takes to 100 watchers, cold start, memory.

`python -m bench.api [--seconds 4] [--etcd] [--no-audit]`. The server is a process of its own, as in a cluster (controllers and
scheduler in it); the load is `wrk` (Debian: wrk) with a service account's token, so RBAC is asked, and each request
is recorded in the audit log by the default policy of `wherry up`; the watchers are this process. Prints one JSON object;
times are seconds, memory is MB, `cpu_us` the server's CPU time a request, which other programs' load hardly changes.
With --etcd objects are in a real etcd of one member started for it, else in SQLite.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import socket
import ssl
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench import signals
from bench.server import SERVER
from bench.watchers import Watchers
from kube import pki_layout, process
from kube.api import authentication_v1, core_v1, meta_v1, rbac_v1
from kube.client import Client
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.transport import HttpsTransport
from wherry import defaults

OBJECTS = 500
WATCHERS = 100
UPDATES = 200
CREATE = """
local id = {id}
local count = 0
request = function()
  count = count + 1
  local metadata = string.format('{{"name":"w-%d-%d","labels":{{"app":"bench"}}}}', id, count)
  local body = '{{"metadata":' .. metadata .. ',"data":{{"key":"value"}}}}'
  return wrk.format("POST", nil, {{["Authorization"]="Bearer {token}",["Content-Type"]="application/json"}}, body)
end
"""
UPDATE = """
local id = {id}
local count = 0
request = function()
  count = count + 1
  local metadata = string.format('{{"name":"object-%d","namespace":"list","labels":{{"app":"bench"}}}}', count % {objects})
  local body = '{{"metadata":' .. metadata .. ',"data":{{"key":"' .. id .. '-' .. count .. '"}}}}'
  local path = string.format("/api/v1/namespaces/list/configmaps/object-%d", count % {objects})
  return wrk.format("PUT", path, {{["Authorization"]="Bearer {token}",["Content-Type"]="application/json"}}, body)
end
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Bench:
    def __init__(self, directory: Path, seconds: int) -> None:
        self.directory, self.seconds, self.port = directory, seconds, free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        keys = pki_layout.ensure(directory / "pki", now=datetime.now(UTC), hosts=("127.0.0.1",))
        admin = keys.client("bench", ("system:masters",), datetime.now(UTC))
        access = Access(self.url, keys.ca.cert_pem, admin.cert_pem, admin.key_pem)
        self.client = Client(HttpsTransport(access))
        self.tls = ssl.create_default_context(cafile=str(directory / "pki" / "ca.crt"))
        self.token = ""

    async def until_ready(self) -> None:
        while True:
            try:
                await self.client.call("GET", "/readyz")
                return
            except StatusError:
                await asyncio.sleep(0.01)

    async def prepare(self) -> None:
        meta = meta_v1.ObjectMeta(name="bench", namespace="default")
        await self.client.create(core_v1.ServiceAccount(metadata=meta))
        subject = rbac_v1.Subject(kind="ServiceAccount", name="bench", namespace="default")
        role = rbac_v1.RoleRef(api_group="rbac.authorization.k8s.io", kind="ClusterRole", name="cluster-admin")
        binding = rbac_v1.ClusterRoleBinding(
            metadata=meta_v1.ObjectMeta(name="bench"), subjects=[subject], role_ref=role
        )
        await self.client.create(binding)
        request = authentication_v1.TokenRequest()
        answer = await self.client.post(core_v1.ServiceAccount, "bench", "default", "token", request)
        self.token = json.loads(answer)["status"]["token"]
        await self.client.create(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name="list")))
        for number in range(OBJECTS):
            meta = meta_v1.ObjectMeta(name=f"object-{number}", namespace="list", labels={"app": "bench"})
            await self.client.create(core_v1.ConfigMap(metadata=meta, data={"key": "value" * 10}))

    async def load(self, path: str, connections: int, script: str = "") -> dict[str, float]:
        """Return requests per second and what they took; a failed request fails the measurement."""
        argv = ["wrk", "-t1", f"-c{connections}", f"-d{self.seconds}", "--latency"]
        if script:
            argv += ["-s", script]
        argv += ["-H", f"Authorization: Bearer {self.token}", self.url + path]
        before = self.processor()
        text = (await process.run(argv)).stdout
        used = self.processor() - before
        if "Non-2xx" in text:
            raise SystemExit(f"requests failed:\n{text}")
        rate = re.search(r"Requests/sec:\s+([\d.]+)", text)
        number = re.search(r"(\d+) requests in", text)
        assert rate is not None and number is not None
        found = {"per_second": round(float(rate.group(1)), 1), "cpu_us": round(used / int(number.group(1)) * 1e6, 1)}
        for share, value, unit in re.findall(r"^\s+(50|99)%\s+([\d.]+)(us|ms|s)$", text, re.M):
            found[f"p{share}"] = round(float(value) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[unit], 5)
        return found

    async def writes(self, text: str, path: str) -> dict[str, float]:
        script = self.directory / "script.lua"
        script.write_text(text.format(id=int(time.time()), token=self.token, objects=OBJECTS))
        return await self.load(path, 32, str(script))

    async def fan_out(self) -> dict[str, float]:
        """Return how long after an update's start the last of the watchers has it."""
        meta = meta_v1.ObjectMeta(name="watched", namespace="default")
        made = await self.client.create(core_v1.ConfigMap(metadata=meta))
        path = "/api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3Dwatched"
        query = f"{path}&resourceVersion={made.metadata.resource_version}"
        request = f"GET {query} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {self.token}\r\n\r\n"
        times = []
        async with Watchers(self.port, self.tls, request.encode(), WATCHERS) as watchers:
            before = self.processor()
            for number in range(UPDATES):
                made.data = {"n": str(number)}
                await watchers.expect()
                start = time.perf_counter()
                writing = asyncio.ensure_future(self.client.update(made))
                await watchers.reached()
                times.append(time.perf_counter() - start)
                made = await writing
            used = self.processor() - before
        ordered = sorted(times)
        return {
            "p50": round(statistics.median(ordered), 5),
            "p99": round(ordered[int(len(ordered) * 0.99) - 1], 5),
            "cpu_us": round(used / UPDATES * 1e6, 1),
        }

    def processor(self) -> float:
        """Return the seconds of CPU time that the server has used; other programs' load hardly changes them."""
        stat = Path(f"/proc/{(self.directory / 'pid').read_text()}/stat").read_text().rpartition(")")[2].split()
        return (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Return the server's resident memory in MB."""
        pid = (self.directory / "pid").read_text()
        text = Path(f"/proc/{pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+)", text)
        assert found is not None
        return round(int(found.group(1)) / 1024, 1)


async def measure(seconds: int, *, on_etcd: bool, audited: bool) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="wherry-bench-") as name:
        directory = Path(name)
        if audited:
            (directory / "audit.yaml").write_bytes(defaults.AUDIT_POLICY.read_bytes())
        bench = Bench(directory, seconds)
        argv = [*SERVER, str(directory), str(bench.port)]
        if not on_etcd:
            return await measure_server(bench, argv)
        from tests.support.etcd import etcd

        async with etcd(directory / "etcd") as cluster:
            return await measure_server(bench, [*argv, cluster.servers[0]])


async def measure_server(bench: Bench, argv: list[str]) -> dict[str, object]:
    """Measure the server that this command starts."""
    started = time.perf_counter()
    server = asyncio.create_task(process.run(argv, timeout=None), name="server")
    try:
        waiting = asyncio.create_task(bench.until_ready(), name="readyz")
        await asyncio.wait((server, waiting), return_when=asyncio.FIRST_COMPLETED)
        if server.done():
            raise SystemExit(f"the server ended: {server.result().stderr}")
        cold = time.perf_counter() - started
        await asyncio.sleep(2)
        fresh = bench.memory()
        await bench.prepare()
        return {
            "readyz_seconds": round(cold, 3),
            "memory_fresh_mb": fresh,
            "get": await bench.load("/api/v1/namespaces/list/configmaps/object-7", 32),
            "list_500": await bench.load("/api/v1/namespaces/list/configmaps", 8),
            "create": await bench.writes(CREATE, "/api/v1/namespaces/default/configmaps"),
            "update": await bench.writes(UPDATE, "/"),
            "update_to_100_watchers": await bench.fan_out(),
            "memory_after_mb": bench.memory(),
        }
    finally:
        await bench.client.close()
        server.cancel()
        (ended,) = await asyncio.gather(server, return_exceptions=True)
        if not isinstance(ended, asyncio.CancelledError):
            print(f"the server ended by itself: {ended}", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=int, default=4)
    parser.add_argument("--etcd", action="store_true", help="measure with the objects in etcd")
    parser.add_argument("--no-audit", action="store_true", help="measure without an audit log")
    arguments = parser.parse_args()
    signals.end_in_order()
    print(json.dumps(uvloop.run(measure(arguments.seconds, on_etcd=arguments.etcd, audited=not arguments.no_audit))))


if __name__ == "__main__":
    main()
