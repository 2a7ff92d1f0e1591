"""Network policies alone: so many pods on this node, and how long one change takes to be in the kernel.

Run as root: `python -m bench.policy [--pods 110 1000] [--policies 50]`. Everything happens in a network namespace of its
own. The API is in memory, so the measurements are the enforcer's and the kernel's: from the moment a change is there until the
kernel has taken it, on the wall and in CPU time (nft's with it). Prints one JSON object.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import time

from bench import signals
from bench.proxy_site import Stopwatch
from netproxy.nft.writer import NftWriter
from netproxy.policy.backend import PolicyBackend
from netproxy.policy.enforcer import PolicyEnforcer
from netproxy.policy.ruleset import TABLE
from netproxy.slim_objects import SlimMeta, SlimNamespace
from tests.support.memory_api import MemoryAPI
from tests.support.netns import namespaces
from tests.support.policies import pod, policy

CHANGES = 10


def address(number: int) -> str:
    return f"10.244.{number >> 8}.{number & 255}"


class Timed(NftWriter):
    """Tells when the kernel has taken something."""

    def __init__(self) -> None:
        super().__init__(4, TABLE)
        self.taken = asyncio.Event()

    async def apply(self, text: str) -> None:
        await super().apply(text)
        self.taken.set()


async def one_size(pods: int, policies: int) -> dict[str, float | int]:
    api, apps = MemoryAPI(), max(1, policies // 2)
    for name in ("default", "other"):
        api.put(SlimNamespace(SlimMeta(name=name, labels={"name": name})))
    for number in range(pods):
        namespace = "default" if number % 2 else "other"
        labels = {"app": f"app-{number % apps}"}
        api.put(pod(f"pod-{number}", address(number), namespace=namespace, node="bench", labels=labels))
    for number in range(policies):
        peers = [{"podSelector": {"matchLabels": {"app": f"app-{(number + 1) % apps}"}}}, {"namespaceSelector": {}}]
        rule = {"from": peers, "ports": [{"port": 80}]}
        subject = {"podSelector": {"matchLabels": {"app": f"app-{number % apps}"}}}
        api.put(policy(f"policy-{number}", ["default", "other"][number % 2], ingress=[rule], **subject))
    writer = Timed()
    enforcer = PolicyEnforcer(api.client(), "bench", [PolicyBackend(writer, 4)])
    enforcer.set_node_ranges(["10.245.0.0/16"])
    began = time.perf_counter()
    task = asyncio.create_task(enforcer.run())
    try:
        await enforcer.started.wait()
        cold = time.perf_counter() - began
        await asyncio.sleep(0.5)
        by_pod, by_policy, pod_cpu, policy_cpu = [], [], [], []
        for number in range(CHANGES):
            labels = {"app": f"app-{number % apps}"}
            watch = Stopwatch()
            by_pod.append(await timed(writer, api, pod("new", f"10.245.0.{number}", node="bench", labels=labels)))
            pod_cpu.append(watch.read()[1])
            rule = {"ports": [{"port": 9000 + number}], "from": [{"namespaceSelector": {}}]}
            watch = Stopwatch()
            by_policy.append(await timed(writer, api, policy("all", ingress=[rule])))
            policy_cpu.append(watch.read()[1])
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return {
        "pods": pods,
        "policies": policies,
        "cold_s": round(cold, 3),
        "pod_change_p50_s": round(statistics.median(by_pod), 4),
        "pod_change_cpu_s": round(statistics.median(pod_cpu), 4),
        "policy_change_cpu_s": round(statistics.median(policy_cpu), 4),
        "policy_change_p50_s": round(statistics.median(by_policy), 4),
        "policy_change_max_s": round(max(by_policy), 4),
    }


async def timed(writer: Timed, api: MemoryAPI, change: object) -> float:
    writer.taken.clear()
    began = time.perf_counter()
    api.put(change)  # type: ignore[arg-type]
    await writer.taken.wait()
    return time.perf_counter() - began


def run(counts: list[int], policies: int) -> dict[str, object]:
    results = []
    for count in counts:
        with namespaces(f"np-q{os.getpid()}") as (node,):
            results.append(node.inside(lambda count=count: one_size(count, policies), timeout=120))  # type: ignore[misc]
    return {"benchmark": "policy", "results": results}


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--pods", type=int, nargs="+", default=[110, 1000])
    arguments.add_argument("--policies", type=int, default=50)
    given = arguments.parse_args()
    signals.end_in_order()
    print(json.dumps(run(given.pods, given.policies), indent=1))
