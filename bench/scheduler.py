"""The scheduler through a real API server: pods bound per second on a cluster of hollow nodes.

`python bench/scheduler.py [--nodes 1000] [--pods 1000] [--kind plain|spread|affinity] [--latency]`. Server and scheduler
share one process, as in `wherry up`; nodes and pods are made before, then the clock runs from the scheduler's start until
the last pod is bound. With `--latency` the pods are made one after the other while the scheduler runs, and what is measured is
how long after the answer to its creation each is bound.
`choose_us` is the CPU time of choosing a node, per pod; `cpu_us_per_pod` that of server and scheduler for one, which other
work on the machine changes least. The garbage collector is set as in the server's process. Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import uvloop

from bench import signals
from control.auth.user import SYSTEM_MASTERS, UserInfo
from control.controllers.identities import SCHEDULER
from control.main import COLLECT
from control.scheduler import main as role
from control.scheduler.algorithm import Algorithm
from control.scheduler.configuration import SchedulerConfig
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM
from kube.shared_informers import SharedInformers
from tests.support.control import api_server

ZONES = 3


def node(number: int) -> core_v1.Node:
    name = f"hollow-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % ZONES}"}
    return core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, labels=labels))


def status() -> core_v1.NodeStatus:
    resources: dict[str, str | int | float] = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    ready = core_v1.NodeCondition(type="Ready", status="True", reason="KubeletReady")
    return core_v1.NodeStatus(allocatable=resources, capacity=resources, conditions=[ready])


def pod(number: int, kind: str) -> core_v1.Pod:
    requests: dict[str, str | int | float] = {"cpu": "100m", "memory": "500Mi"}
    container = core_v1.Container(name="c", image="pause", resources=core_v1.ResourceRequirements(requests=requests))
    spec = core_v1.PodSpec(containers=[container], automount_service_account_token=False)
    selector = meta_v1.LabelSelector(match_labels={"app": "load"})
    if kind == "spread":
        spec.topology_spread_constraints = [
            core_v1.TopologySpreadConstraint(
                max_skew=5,
                topology_key="topology.kubernetes.io/zone",
                when_unsatisfiable="DoNotSchedule",
                label_selector=selector,
            )
        ]
    if kind == "affinity":
        term = core_v1.PodAffinityTerm(label_selector=selector, topology_key="topology.kubernetes.io/zone")
        weighted = core_v1.WeightedPodAffinityTerm(weight=10, pod_affinity_term=term)
        spec.affinity = core_v1.Affinity(
            pod_affinity=core_v1.PodAffinity(preferred_during_scheduling_ignored_during_execution=[weighted])
        )
    metadata = meta_v1.ObjectMeta(name=f"load-{number}", namespace="default", labels={"app": "load"})
    return core_v1.Pod(metadata=metadata, spec=spec)


async def each(count: int, act: object, width: int = 32) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await act(number)  # type: ignore[operator]

    await asyncio.gather(*(worker() for _ in range(width)))


async def measure(nodes: int, pods: int, kind: str, *, latency: bool = False) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="wherry-bench-") as directory:
        async with api_server(Path(directory), enable_controllers=False, enable_scheduler=False) as server:
            admin = server.api.client(UserInfo("kubernetes-admin", groups=(SYSTEM_MASTERS,)))

            async def make_node(number: int) -> None:
                made = await admin.create(node(number))
                made.status = status()
                made = await admin.update_status(made)
                made.spec.taints = []
                await admin.update(made)

            await admin.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
            await each(nodes, make_node)
            if latency:
                return await delays(admin, server.api.client(SCHEDULER), nodes, pods, kind)
            await each(pods, lambda number: admin.create(pod(number, kind)))
            return await run(admin, server.api.client(SCHEDULER), nodes, pods, kind)


async def run(admin: Client, client: Client, nodes: int, pods: int, kind: str) -> dict[str, object]:
    bound, finished = 0, asyncio.Event()
    informers = SharedInformers(client)

    def changed(change: object) -> None:
        nonlocal bound
        if change.new.spec.node_name and not (change.old and change.old.spec.node_name):  # type: ignore[attr-defined]
            bound += 1
            if bound == pods:
                finished.set()

    chosen = 0.0
    place = Algorithm.place

    def timed(self: Algorithm, info: object) -> str:
        nonlocal chosen
        began = time.thread_time()
        try:
            return place(self, info)  # type: ignore[arg-type]
        finally:
            chosen += time.thread_time() - began

    Algorithm.place = timed  # type: ignore[method-assign, assignment]
    informers.of(core_v1.Pod).subscribe(changed)
    informing = asyncio.create_task(informers.run())
    scheduler = role.Scheduler(client, informers, SchedulerConfig(), SYSTEM)
    await informers.wait_synced()
    gc.freeze()
    began, cpu = time.perf_counter(), time.process_time()
    scheduling = asyncio.create_task(scheduler.run())
    async with asyncio.timeout(120):
        await finished.wait()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    for task in (scheduling, informing):
        task.cancel()
    await asyncio.gather(scheduling, informing, return_exceptions=True)
    return {
        "nodes": nodes,
        "pods": pods,
        "kind": kind,
        "pods_per_second": round(pods / seconds),
        "choose_us": round(chosen / pods * 1e6),
        "cpu_share": round(used / seconds, 2),
        "cpu_us_per_pod": round(used / pods * 1e6),
        "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


async def delays(admin: Client, client: Client, nodes: int, pods: int, kind: str) -> dict[str, object]:
    """Make pods one by one and take the time until each is bound."""
    informers, arrived = SharedInformers(client), asyncio.Event()

    def changed(change: object) -> None:
        if change.new.spec.node_name:  # type: ignore[attr-defined]
            arrived.set()

    informers.of(core_v1.Pod).subscribe(changed)
    scheduler = role.Scheduler(client, informers, SchedulerConfig(), SYSTEM)
    working = [asyncio.create_task(informers.run()), asyncio.create_task(scheduler.run())]
    await informers.wait_synced()
    found: list[float] = []
    cpu = time.process_time()
    for number in range(pods):
        arrived.clear()
        await admin.create(pod(number, kind))
        began = time.perf_counter()
        async with asyncio.timeout(30):
            await arrived.wait()
        found.append(time.perf_counter() - began)
    used = time.process_time() - cpu
    for task in working:
        task.cancel()
    await asyncio.gather(*working, return_exceptions=True)
    found.sort()
    return {
        "nodes": nodes,
        "pods": pods,
        "kind": kind,
        "latency_p50_ms": round(found[len(found) // 2] * 1e3, 2),
        "latency_p90_ms": round(found[len(found) * 9 // 10] * 1e3, 2),
        "latency_min_ms": round(found[0] * 1e3, 2),
        "cpu_us_per_pod": round(used / pods * 1e6),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--kind", choices=["plain", "spread", "affinity"], default="plain")
    parser.add_argument("--latency", action="store_true")
    options = parser.parse_args()
    signals.end_in_order()
    gc.set_threshold(*COLLECT)
    print(json.dumps(uvloop.run(measure(options.nodes, options.pods, options.kind, latency=options.latency))))


if __name__ == "__main__":
    main()
