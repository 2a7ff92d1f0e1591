"""Simulates a large cluster: hollow nodes that renew leases and run pods, and the control plane.

`python -m bench.hollow [--nodes 5000] [--pods 5000] [--idle 10]`. The control plane (server, controllers, scheduler, SQLite) is
a process of its own, reached over HTTPS; the nodes are in this one. Measured: how fast nodes register, how fast a
Deployment's pods are created, bound and Ready, and the CPU time of the control plane with only lease renewals.
Prints one JSON object; memory is resident MiB, CPU a share of one core, or milliseconds of the control plane for one node,
one pod (from the Deployment to Ready) and one lease's renewal, which other work on the machine changes least.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import uvloop

from bench import signals
from control.main import COLLECT
from kube import kubeconfig
from kube.api import apps_v1, coordination_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM, format_micro_time
from kube.transport import HttpsTransport
from tests.support.control import api_server
from tests.support.hollow import HollowNodes, running

LEASE_SECONDS = 10.0
AT_ONCE = 32
TICKS = os.sysconf("SC_CLK_TCK")


async def serve(directory: Path) -> None:
    """Run the control plane until standard input ends."""
    gc.set_threshold(*COLLECT)  # as in the server's process
    # A /24 for each of 5 000 nodes needs more than the usual range.
    async with api_server(directory, enable_controllers=True, enable_scheduler=True, pod_cidr="10.0.0.0/8") as server:
        print(server.kubeconfig(), flush=True)
        await asyncio.to_thread(sys.stdin.read)


class Control:
    """The control plane's process, from outside."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def memory(self) -> int:
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20

    def cpu(self) -> float:
        words = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS


async def each(count: int, act: object) -> None:
    numbers = iter(range(count))

    async def worker() -> None:
        for number in numbers:
            await act(number)  # type: ignore[operator]

    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))


class Leases:
    """Renews the leases that were made in turn, each every ten seconds; one that is late puts no other off.

    They are renewed while further nodes register, too: where that takes more than the grace period the first ones would
    fall silent meanwhile, and the control plane would be busy with driving pods off them.
    """

    def __init__(self, client: Client) -> None:
        self._client, self.renewed = client, 0
        self._made: list[str] = []
        self._under_way: set[str] = set()

    async def make(self, number: int) -> None:
        name = f"hollow-{number}"
        metadata = meta_v1.ObjectMeta(name=name, namespace="kube-node-lease")
        await self._client.create(coordination_v1.Lease(metadata=metadata, spec=self._spec(name)))
        self._made.append(name)

    def _spec(self, name: str) -> coordination_v1.LeaseSpec:
        now = format_micro_time(SYSTEM.now())
        return coordination_v1.LeaseSpec(holder_identity=name, lease_duration_seconds=40, renew_time=now)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            due, number = time.monotonic(), 0
            while True:
                due = max(due, time.monotonic() - LEASE_SECONDS) + LEASE_SECONDS / max(1, len(self._made))
                if self._made:
                    number = (number + 1) % len(self._made)
                    if (name := self._made[number]) not in self._under_way:
                        group.create_task(self._renew(name))
                await asyncio.sleep(max(0.0, due - time.monotonic()) if self._made else 1.0)

    async def _renew(self, name: str) -> None:
        self._under_way.add(name)
        try:
            patch = {"spec": {"renewTime": format_micro_time(SYSTEM.now())}}
            await self._client.patch(coordination_v1.Lease, name, "kube-node-lease", patch)
            self.renewed += 1
        finally:
            self._under_way.discard(name)


async def measure(nodes: int, pods: int, idle: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory(prefix="wherry-bench-") as directory:
        child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.hollow", "--serve", directory),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert child.stdout is not None and child.stdin is not None
        try:
            config = (await child.stdout.readline()).decode().strip()
            client = Client(HttpsTransport(kubeconfig.load(config)))
            try:
                return await run(client, Control(child.pid), nodes, pods, idle)
            finally:
                await client.close()
        finally:
            child.stdin.close()
            await child.wait()


async def run(client: Client, control: Control, nodes: int, pods: int, idle: float) -> dict[str, object]:
    result: dict[str, object] = {"nodes": nodes, "pods": pods, "memory_empty_mib": control.memory()}
    hollow, leases = HollowNodes(client, silent=True), Leases(client)

    async def register(number: int) -> None:
        await leases.make(number)
        await hollow.register(f"hollow-{number}", **{"topology.kubernetes.io/zone": f"zone-{number % 3}"})

    async with running(hollow.run(), leases.run()):
        began, used = time.perf_counter(), control.cpu()
        await each(nodes, register)
        result["nodes_per_second"] = round(nodes / (time.perf_counter() - began))
        result["cpu_ms_per_node"] = round((control.cpu() - used) / nodes * 1e3, 2)
        used, renewed = control.cpu(), leases.renewed
        result |= await deploy(client, hollow, pods)
        spent, beside = control.cpu() - used, leases.renewed - renewed
        result["memory_mib"] = control.memory()
        used, renewed, began = control.cpu(), leases.renewed, time.perf_counter()
        await asyncio.sleep(idle)
        seconds = time.perf_counter() - began
        result["idle_cpu_share"] = round((control.cpu() - used) / seconds, 2)
        result["leases_per_second"] = round((leases.renewed - renewed) / seconds)
        lease = (control.cpu() - used) / max(1, leases.renewed - renewed)
        result["cpu_ms_per_lease"] = round(lease * 1e3, 2)
        result["cpu_ms_per_pod"] = round((spent - beside * lease) / pods * 1e3, 2)
    return result


async def deploy(client: Client, hollow: HollowNodes, pods: int) -> dict[str, object]:
    """Make a Deployment and wait until all its pods are Ready."""
    requests: dict[str, str | int | float] = {"cpu": "100m", "memory": "100Mi"}
    container = core_v1.Container(name="c", image="pause", resources=core_v1.ResourceRequirements(requests=requests))
    template = core_v1.PodTemplateSpec(
        metadata=meta_v1.ObjectMeta(labels={"app": "load"}),
        spec=core_v1.PodSpec(containers=[container], automount_service_account_token=False),
    )
    spec = apps_v1.DeploymentSpec(
        replicas=pods, selector=meta_v1.LabelSelector(match_labels={"app": "load"}), template=template
    )
    ready: set[str] = set()
    done, bound = asyncio.Event(), asyncio.Event()
    placed: set[str] = set()

    def changed(change: object) -> None:
        pod = change.new  # type: ignore[attr-defined]
        if pod.spec.node_name:
            placed.add(change.key)  # type: ignore[attr-defined]
        if any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions):
            ready.add(change.key)  # type: ignore[attr-defined]
        if len(placed) == pods:
            bound.set()
        if len(ready) == pods:
            done.set()

    hollow.pods.subscribe(changed)
    began = time.perf_counter()
    await client.create(apps_v1.Deployment(metadata=meta_v1.ObjectMeta(name="load", namespace="default"), spec=spec))
    async with asyncio.timeout(600):
        await bound.wait()
        placing = time.perf_counter() - began
        await done.wait()
    return {
        "bound_per_second": round(pods / placing),
        "ready_per_second": round(pods / (time.perf_counter() - began)),
        "nodes_used": len({pod.spec.node_name for pod in hollow.pods.list()}),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=5000)
    parser.add_argument("--idle", type=float, default=10.0)
    parser.add_argument("--serve", type=Path)
    options = parser.parse_args()
    if options.serve is not None:
        uvloop.run(serve(options.serve))
    else:
        signals.end_in_order()
        print(json.dumps(uvloop.run(measure(options.nodes, options.pods, options.idle))))


if __name__ == "__main__":
    main()
