"""Start of etcd and upstream's kube-apiserver to `/readyz`, as envtest starts them, for comparison with a cluster for tests.

    WHERRY_KUBERNETES=DIR python -m bench.testing envtest        DIR/bin has upstream's programs; etcd is on PATH

They have no controllers, scheduler and nodes, so no Deployment gets pods. Certificates exist before, and etcd's data are
in memory.
"""

from __future__ import annotations

import asyncio
import os
import resource
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kube import kubeconfig, pki_layout
from kube.client import Client
from kube.errors import StatusError
from kube.transport import HttpsTransport
from tests.conformance import daemon_flags
from tests.support.ports import reserve

PROGRAMS = "WHERRY_KUBERNETES"
TIMES, MOST_SECONDS, POLL_SECONDS = 3, 60.0, 0.02


def measure() -> dict[str, float]:
    """Return medians of the wall time and the CPU time until readiness, and of the memory then."""
    found = [asyncio.run(_once()) for _ in range(TIMES)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


async def _once() -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="wherry-bench-", dir="/dev/shm") as name:
        folder = Path(name)
        keys = pki_layout.ensure(folder / "pki", now=datetime.now(UTC), hosts=("127.0.0.1",))
        port, client_port, peer_port = reserve(3)
        admin = keys.client("admin", ("system:masters",), datetime.now(UTC))
        access = kubeconfig.Access(f"https://127.0.0.1:{port}", keys.ca.cert_pem, admin.cert_pem, admin.key_pem)
        url = f"http://127.0.0.1:{client_port}"
        began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        with _process(folder, _etcd(folder, client_port, peer_port)) as etcd:
            binary = str(Path(os.environ[PROGRAMS]) / "bin/kube-apiserver")
            flags = daemon_flags.api_server(folder / "pki", url, "127.0.0.1", port)
            with _process(folder, [binary, "--bind-address=127.0.0.1", *flags]) as server:
                transport = HttpsTransport(access)
                try:
                    await _ready(Client(transport))
                finally:
                    await transport.close()
                found = {"ready": time.monotonic() - began, "memory": _resident(etcd) + _resident(server)}
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return found | {"ready_cpu": used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime}


async def _ready(client: Client) -> None:
    async with asyncio.timeout(MOST_SECONDS):
        while True:
            try:
                await client.call("GET", "/readyz")
                return
            except (StatusError, OSError):
                await asyncio.sleep(POLL_SECONDS)


def _etcd(folder: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = f"http://127.0.0.1:{client_port}", f"http://127.0.0.1:{peer_port}"
    return [
        "etcd",
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
    ]


@contextmanager
def _process(folder: Path, command: list[str]) -> Iterator[int]:
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * resource.getpagesize() / 1e6
