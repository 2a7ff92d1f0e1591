"""Measure the store and the watch cache in one process and print JSON: durable creates a second, update to last watcher.

On SQLite, or with --etcd on a real etcd of one member that is started for it in the same folder.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from bench import signals
from control.storage import codec
from control.storage.cache import WatchCache
from control.storage.sqlite import SqliteStore
from control.storage.store import Store

PREFIX = "/registry/pods/"


def pod(name: str) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "registry.k8s.io/pause:3.10",
        "env": [{"name": f"E{i}", "value": "x" * 40} for i in range(20)],
    }
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": name, "namespace": "default", "uid": "0" * 36, "labels": {"app": "web"}},
        "spec": {"containers": [container], "nodeName": "node-1"},
        "status": {"phase": "Running", "conditions": [{"type": t, "status": "True"} for t in ("Ready", "Initialized")]},
    }


async def creates(store: Store, writers: int, seconds: float) -> dict[str, float]:
    value = codec.encode(pod("x"))
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def write(worker: int) -> None:
        index = 0
        while time.perf_counter() < end:
            start = time.perf_counter()
            await store.create(f"{PREFIX}bench-{writers}/{worker}-{index}", value)
            latencies.append(time.perf_counter() - start)
            index += 1

    await asyncio.gather(*(write(worker) for worker in range(writers)))
    latencies.sort()
    return {
        "writers": writers,
        "value_bytes": len(value),
        "creates_per_second": round(len(latencies) / seconds),
        "p50_ms": round(statistics.median(latencies) * 1000, 2),
        "p99_ms": round(latencies[int(len(latencies) * 0.99)] * 1000, 2),
    }


async def fan_out(store: Store, watchers: int, updates: int) -> dict[str, float]:
    cache = WatchCache(store)
    pods = cache.resource(PREFIX, "Pod", "v1")
    running = asyncio.create_task(cache.run())
    await cache.wait_ready()
    item = await store.create(PREFIX + "default/fan-out", codec.encode(pod("fan-out")))
    await cache.wait_fresh(item.revision)
    arrived: list[float] = []

    async def follow() -> None:
        async for notices in pods.watch(item.revision):
            for notice in notices:
                assert notice.wire
                arrived.append(time.perf_counter())

    tasks = [asyncio.create_task(follow()) for _ in range(watchers)]
    await asyncio.sleep(0)
    value, total, told = codec.encode(pod("fan-out")), [], []
    for _ in range(updates):
        arrived.clear()
        start = time.perf_counter()
        item = await store.update(item.key, value, item.revision)
        while len(arrived) < watchers:
            await asyncio.sleep(0)
        total.append(max(arrived) - start)
        told.append(max(arrived) - min(arrived))
    for task in [*tasks, running]:
        task.cancel()
    return {
        "watchers": watchers,
        "update_to_last_watcher_p50_ms": round(statistics.median(total) * 1000, 2),
        "first_to_last_watcher_p50_ms": round(statistics.median(told) * 1000, 2),
        "per_delivery_us": round(statistics.median(told) / watchers * 1e6, 2),
    }


async def current_reads(store: Store, readers: int, seconds: float) -> dict[str, float]:
    """Measure what a read that must not be stale waits for: the store's revision."""
    latencies: list[float] = []
    end = time.perf_counter() + seconds

    async def read() -> None:
        while time.perf_counter() < end:
            start = time.perf_counter()
            await store.current_revision()
            latencies.append(time.perf_counter() - start)
            await asyncio.sleep(0)

    await asyncio.gather(*(read() for _ in range(readers)))
    return {
        "readers": readers,
        "reads_per_second": round(len(latencies) / seconds),
        "p50_ms": round(statistics.median(latencies) * 1000, 3),
    }


async def measure(opener: Callable[[], Awaitable[Store]], seconds: float) -> dict[str, Any]:
    store = await opener()
    result: dict[str, Any] = {
        "creates_32": await creates(store, 32, seconds),
        "creates_1": await creates(store, 1, seconds),
        "current_revision_32": await current_reads(store, 32, min(seconds, 1.0)),
        "fan_out": await fan_out(store, 100, 200),
    }
    await store.close()
    start = time.perf_counter()
    store = await opener()
    result["reopen_ms"] = round((time.perf_counter() - start) * 1000, 1)
    result["revisions"] = await store.current_revision()
    await store.close()
    return result


async def main(folder: Path, seconds: float, *, on_etcd: bool) -> None:
    if on_etcd:
        from tests.support.etcd import etcd, open_etcd

        async with etcd(folder / "etcd") as cluster:
            result = await measure(lambda: open_etcd(cluster), seconds)
    else:
        result = await measure(lambda: SqliteStore.open(folder / "bench.db"), seconds)
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--directory", type=Path, help="where the file goes; its disk is what is measured")
    parser.add_argument("--etcd", action="store_true", help="measure the etcd engine")
    options = parser.parse_args()
    signals.end_in_order()
    with tempfile.TemporaryDirectory(dir=options.directory) as made:
        asyncio.run(main(Path(made), options.seconds, on_etcd=options.etcd))
