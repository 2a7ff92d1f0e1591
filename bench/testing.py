"""Clusters for tests (`wherry.testing`): start, restore, a Deployment of 100 pods, virtual time, memory.

    python -m bench.testing [PART...]        prints JSON: a part is an object; times are seconds, memory is MB

Parts: start (import, first and further clusters), rate (two processes), restore, deployment, idle (30 virtual days), cronjobs
(the same with 20 daily CronJobs), memory; envtest with WHERRY_KUBERNETES=DIR (bench/envtest.py). Each one runs in a process of
its own, so that it begins without imported modules. `..._cpu` is the process's CPU time: it depends less on other load than
wall time does. Imports need compiled modules, which `scripts/bench` makes, and a wheel's installation too.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wherry.testing import Cluster

FURTHER, RESTORES, DEPLOYMENTS = 10, 20, 5
PODS, NODES, DAYS, CRON_JOBS = 100, 3, 30, 20
RATE_SECONDS, PROCESSES = 20.0, 2
TARGETS = {
    "start": {"first": 0.3},
    "rate": {"clusters_per_minute": 1000},
    "restore": {"restore": 0.01},
    "deployment": {"ready": 0.3},
    "cronjobs": {"days": 2.0},
    "memory": {"fresh": 60},
}
Measured = dict[str, float]


@contextmanager
def timed(into: Measured, name: str) -> Iterator[None]:
    """Add the wall time and the CPU time of the block."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    into[name], into[f"{name}_cpu"] = time.perf_counter() - wall, time.process_time() - cpu


def median(measure: Callable[[], Measured], times: int) -> Measured:
    """Return the medians of repeated measurements."""
    found = [measure() for _ in range(times)]
    return {name: statistics.median(each[name] for each in found) for name in found[0]}


def resident(name: str) -> Measured:
    """Return the resident memory in MB, and what of it no other process can share: without the pages of files."""
    if sys.platform != "linux":
        return {name: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6}
    with open("/proc/self/statm") as file:
        _, all_pages, shared = map(int, file.read().split()[:3])
    page = resource.getpagesize() / 1e6
    return {name: all_pages * page, f"{name}_private": (all_pages - shared) * page}


def cluster(nodes: int = 1, **options: Any) -> Cluster:
    from wherry.testing import Cluster

    return Cluster(nodes, **options)


def one_start() -> Measured:
    found: Measured = {}
    with timed(found, "start"):
        made = cluster().__enter__()
    with timed(found, "end"):
        made.__exit__(None, None, None)
    return found


def start() -> Measured:
    """The import, the first cluster after it, and further ones."""
    found: Measured = {}
    with timed(found, "import"):
        from wherry.testing import Cluster  # noqa: F401
    first = one_start()
    found |= {"first": first["start"], "first_cpu": first["start_cpu"]}
    return found | {f"further_{name}": value for name, value in median(one_start, FURTHER).items()}


def starting() -> Measured:
    """Clusters that are started and ended one after another for a while."""
    number, until = 0, time.monotonic() + RATE_SECONDS
    while time.monotonic() < until:
        one_start()
        number += 1
    return {"clusters": number, "cpu": time.process_time()}


def rate() -> Measured:
    """Clusters a minute of two processes, with their start and imports."""
    began = time.monotonic()
    processes = [_process("starting") for _ in range(PROCESSES)]
    found = [json.loads(each.communicate()[0]) for each in processes]
    elapsed, number = time.monotonic() - began, sum(each["clusters"] for each in found)
    return {"clusters_per_minute": number * 60 / elapsed, "cpu_each": sum(each["cpu"] for each in found) / number}


def restore() -> Measured:
    """The return to a snapshot after a test that made a Deployment of three pods and a ConfigMap."""
    with cluster() as running:
        snapshot = running.snapshot()

        def once() -> Measured:
            running.apply([deployment(3), {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "test"}}])
            running.wait("deployment/web", "Available")
            found: Measured = {}
            with timed(found, "restore"):
                snapshot.restore()
            return found

        return median(once, RESTORES)


def pods_ready() -> Measured:
    """A Deployment of 100 pods on three nodes, until all are available; the first of the process has imports too."""
    found: list[Measured] = []
    for _ in range(DEPLOYMENTS):
        with cluster(NODES) as running:
            running.snapshot()  # the controllers have started
            found.append({})
            with timed(found[-1], "ready"):
                running.apply(deployment(PODS))
                running.wait("deployment/web", f"status.availableReplicas={PODS}")
    first = {f"first_{name}": value for name, value in found[0].items()}
    return first | {name: statistics.median(each[name] for each in found[1:]) for name in found[0]}


def idle() -> Measured:
    """30 virtual days of three nodes without load."""
    return _virtual([])


def cron_jobs() -> Measured:
    """30 virtual days with 20 daily CronJobs."""
    template = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}}}
    return _virtual(
        [
            {
                "apiVersion": "batch/v1",
                "kind": "CronJob",
                "metadata": {"name": f"daily-{number}"},
                "spec": {"schedule": f"{number} 3 * * *", "jobTemplate": template},
            }
            for number in range(CRON_JOBS)
        ]
    )


def _virtual(objects: list[dict[str, Any]]) -> Measured:
    found: Measured = {}
    with cluster(NODES, time="virtual") as running:
        running.apply(objects)
        with timed(found, "days"):
            running.advance(days=DAYS)
    return found


def memory() -> Measured:
    """Resident memory of the process after the import, with a cluster, and with 100 pods in it."""
    from wherry.testing import Cluster  # noqa: F401

    found = resident("imported")
    with cluster(NODES) as running:
        found |= resident("fresh")
        running.apply(deployment(PODS))
        running.wait("deployment/web", f"status.availableReplicas={PODS}")
        found |= resident("with_pods")
    return found


def deployment(replicas: int) -> dict[str, Any]:
    labels = {"app": "web"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}},
        },
    }


PARTS: dict[str, Callable[[], Measured]] = {
    "start": start,
    "rate": rate,
    "restore": restore,
    "deployment": pods_ready,
    "idle": idle,
    "cronjobs": cron_jobs,
    "memory": memory,
}


def envtest() -> Measured:
    """etcd and upstream's API server until it is ready, without nodes and controllers."""
    from bench import envtest

    return envtest.measure()


def _process(part: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "bench.testing", "--inside", part]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main(arguments: list[str]) -> None:
    """Run the parts, each in a process, or one inside this process."""
    if arguments[:1] == ["--inside"]:
        measured = {"starting": starting, "envtest": envtest, **PARTS}[arguments[1]]()
        print(json.dumps({name: round(value, 4) for name, value in measured.items()}))
        return
    for name in arguments or [*PARTS, *(["envtest"] if "WHERRY_KUBERNETES" in os.environ else [])]:
        load = os.getloadavg()[0]
        process = _process(name)
        output, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"{name} failed")
        print(json.dumps({name: json.loads(output), "targets": TARGETS.get(name, {}), "load": load}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
