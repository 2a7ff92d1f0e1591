"""Time to readiness of the API server after SIGKILL with 50 000 objects, and its memory after 35 000 deletions.

`python -m bench.recovery [--objects 50000] [--times 5] [--parts recovery memory]`. The server is a process of its own with
controllers and scheduler, as in a cluster. It is killed while clients write to it and started at once, as the supervisor does;
the time is that until /readyz says ok, and `cpu` the server's CPU time until then. Prints one JSON object: seconds, and
MiB of proportional set size.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import uvloop

from bench import signals
from bench.api import Bench
from bench.server import SERVER, configuration
from control.storage import codec
from control.storage.sqlite import SqliteStore
from kube.api import core_v1, meta_v1
from kube.errors import StatusError
from wherry import defaults

WRITERS = 16
CONFIG_MAPS, SERVICES = 30_000, 5_000
PARTS = ("recovery", "memory")
SETTLE_SECONDS = (60, 90)
"""Looks at what is left, one after the other."""


def config_map(namespace: str, name: str) -> core_v1.ConfigMap:
    meta = meta_v1.ObjectMeta(name=name, namespace=namespace, labels={"app": "bench"})
    return core_v1.ConfigMap(metadata=meta, data={"key": "value" * 40})


async def fill(path: Path, number: int) -> None:
    """Put objects into a store that nobody serves."""
    store = await SqliteStore.open(path)

    async def some(first: int) -> None:
        for n in range(first, number, WRITERS * 16):
            meta = {
                "name": f"object-{n}",
                "namespace": "filled",
                "uid": f"{n:036}",
                "creationTimestamp": "2026-01-01T00:00:00Z",
            }
            value = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": meta, "data": {"key": "value" * 100}}
            await store.create(f"/registry/configmaps/filled/object-{n}", codec.encode(value))

    await asyncio.gather(*(some(n) for n in range(WRITERS * 16)))
    await store.close()


@contextlib.asynccontextmanager
async def served(bench: Bench) -> AsyncIterator[subprocess.Popen[bytes]]:
    """Run the server until the block ends; it is ready inside."""
    argv = [*SERVER, str(bench.directory), str(bench.port)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:  # noqa: ASYNC220 - nothing else runs meanwhile
        try:
            await bench.until_ready()
            yield server
        finally:
            server.kill()


async def writing(bench: Bench, worker: int) -> None:
    """Create objects until cancelled; the server may be away."""
    for number in range(1_000_000):
        with contextlib.suppress(StatusError):
            await bench.client.create(config_map("default", f"w-{worker}-{time.monotonic_ns()}-{number}"))


async def recoveries(bench: Bench, times: int) -> list[dict[str, float]]:
    """Return what each start after a kill took until /readyz."""
    found = []
    for _ in range(times):
        async with served(bench) as server:
            writers = [asyncio.create_task(writing(bench, n)) for n in range(WRITERS)]
            await asyncio.sleep(2)
            server.kill()
            server.wait()
            start = time.perf_counter()
            async with served(bench):
                seconds = round(time.perf_counter() - start, 3)
                found.append({"seconds": seconds, "cpu": round(bench.processor(), 2)})
                for writer in writers:
                    writer.cancel()
                await asyncio.gather(*writers, return_exceptions=True)
    return found


async def each(jobs: Iterable[Callable[[], Awaitable[object]]]) -> None:
    """Do jobs, so many at once."""
    left = iter(jobs)

    async def work() -> None:
        for job in left:
            await job()

    await asyncio.gather(*(work() for _ in range(WRITERS * 2)))


def service(name: str) -> core_v1.Service:
    spec = core_v1.ServiceSpec(selector={"app": name}, ports=[core_v1.ServicePort(port=80)])
    return core_v1.Service(metadata=meta_v1.ObjectMeta(name=name, namespace="default"), spec=spec)


async def remove(bench: Bench, name: str) -> None:
    """Delete a Service, which a deletion of all that timed out may delete meanwhile."""
    try:
        await bench.client.delete(core_v1.Service, name, "default")
    except StatusError as error:
        if not error.not_found:
            raise


def pss(server: subprocess.Popen[bytes]) -> float:
    """Return a process's proportional set size in MiB."""
    lines = Path(f"/proc/{server.pid}/smaps_rollup").read_text().splitlines()
    return round(int(next(line.split()[1] for line in lines if line.startswith("Pss:"))) / 1024, 1)


async def emptied(bench: Bench) -> dict[str, float]:
    """Return what the server has fresh, full, and some time after all was deleted."""
    client = bench.client
    async with served(bench) as server:
        await asyncio.sleep(2)
        fresh = pss(server)
        await each(lambda n=n: client.create(config_map("default", f"c-{n}")) for n in range(CONFIG_MAPS))  # type: ignore[misc]
        await each(lambda n=n: client.create(service(f"s-{n}")) for n in range(SERVICES))  # type: ignore[misc]
        full = pss(server)
        for kind in ("configmaps", "services"):
            with contextlib.suppress(StatusError):  # one that takes a minute continues until all are gone
                await client.call("DELETE", f"/api/v1/namespaces/default/{kind}")
        names = [f"s-{n}" for n in range(SERVICES)]
        left = {s.metadata.name for s in (await client.list(core_v1.Service, "default")).items}
        await each(lambda name=name: remove(bench, name) for name in names if name in left)  # type: ignore[misc]
        while len((await client.list(core_v1.ConfigMap, "default")).items) > 2:  # the root CA's is recreated
            with contextlib.suppress(StatusError):
                await client.call("DELETE", "/api/v1/namespaces/default/configmaps")
        found = {"fresh": fresh, "full": full, "emptied": pss(server)}
        for seconds in SETTLE_SECONDS:
            await asyncio.sleep(seconds)
            found[f"{seconds} s later"] = pss(server)
        return found


async def measure(objects: int, times: int, parts: Sequence[str]) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="wherry-bench-") as name:
        directory = Path(name)
        found: dict[str, object] = {}
        for part in parts:
            folder = directory / part
            folder.mkdir()
            (folder / "audit.yaml").write_bytes(defaults.AUDIT_POLICY.read_bytes())
            bench = Bench(folder, 0)
            try:
                if part == "recovery":
                    path = configuration(folder, bench.port).data_dir
                    path.mkdir()
                    await fill(path / "state.db", objects)
                    found["objects"], found["readyz"] = objects, await recoveries(bench, times)
                else:
                    found["pss_mib"] = await emptied(bench)
            finally:
                await bench.client.close()
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--objects", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=PARTS)
    given = parser.parse_args()
    signals.end_in_order()
    print(json.dumps(uvloop.run(measure(given.objects, given.times, given.parts))))


if __name__ == "__main__":
    main()
