"""Measurements taken as a client of a running cluster, from inside its network: pods, Services, memory.

python -m bench.inside KUBECONFIG IMAGE PART...        prints one JSON object; times are seconds

Parts: pod (one at a time), burst (30 at once, three times), churn (eight at a time, as fast as they come and go), services.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from kube import kubeconfig
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.transport import HttpsTransport

NAMESPACE = "bench"
SINGLE_PODS = 11
BURST, BURSTS = 30, 3
CHURN, AT_ONCE = 64, 8
SERVICES = (0, 1000)
SERVICE_TRIES = 7


def pod_spec(image: str) -> core_v1.PodSpec:
    command = ["sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait $!; done"]
    return core_v1.PodSpec(
        containers=[core_v1.Container(name="main", image=image, command=command)], termination_grace_period_seconds=5
    )


def is_ready(pod: core_v1.Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


class Pods:
    """A watch on the namespace's pods, and waiting for what it shows."""

    def __init__(self, client: Client) -> None:
        self.informer = Informer(client, core_v1.Pod, NAMESPACE)
        self._changed = asyncio.Event()
        self.informer.subscribe(self._note)

    def _note(self, _: Change[core_v1.Pod]) -> None:
        # Each change wakes all that wait, however many they are.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def until(self, true: Callable[[list[core_v1.Pod]], bool], seconds: float = 120) -> None:
        async with asyncio.timeout(seconds):
            while not true(self.informer.list()):
                changed = self._changed
                await changed.wait()


@contextlib.asynccontextmanager
async def watching(client: Client) -> AsyncIterator[Pods]:
    pods = Pods(client)
    task = asyncio.create_task(pods.informer.run())
    await pods.informer.wait_synced()
    try:
        yield pods
    finally:
        task.cancel()


async def single_pods(client: Client, pods: Pods, image: str) -> dict[str, float]:
    """One pod at a time: create call to Ready, delete call to gone, as a watch sees it."""
    starts, ends = [], []
    for number in range(SINGLE_PODS):
        name = f"one-{number}"
        pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE), spec=pod_spec(image))
        began = time.perf_counter()
        await client.create(pod)
        await pods.until(lambda found: any(is_ready(p) for p in found))
        starts.append(time.perf_counter() - began)
        began = time.perf_counter()
        await client.delete(core_v1.Pod, name, NAMESPACE)
        await pods.until(lambda found: not found)
        ends.append(time.perf_counter() - began)
    return {"pod_start_p50": statistics.median(starts[1:]), "pod_delete_p50": statistics.median(ends[1:])}


async def burst(client: Client, pods: Pods, image: str) -> dict[str, float]:
    """A Deployment of 30: create call to all Ready; delete call to all gone; medians of three."""
    labels = {"app": "burst"}
    deployment = apps_v1.Deployment(
        metadata=meta_v1.ObjectMeta(name="burst", namespace=NAMESPACE),
        spec=apps_v1.DeploymentSpec(
            replicas=BURST,
            selector=meta_v1.LabelSelector(match_labels=labels),
            template=core_v1.PodTemplateSpec(metadata=meta_v1.ObjectMeta(labels=labels), spec=pod_spec(image)),
        ),
    )
    up, gone = [], []
    for _ in range(BURSTS):
        began = time.perf_counter()
        await client.create(deployment)
        await pods.until(lambda found: sum(map(is_ready, found)) == BURST)
        up.append(time.perf_counter() - began)
        began = time.perf_counter()
        await client.delete(apps_v1.Deployment, "burst", NAMESPACE, propagation="Background")
        await pods.until(lambda found: not found)
        gone.append(time.perf_counter() - began)
    ready = statistics.median(up)
    return {
        "burst_30_ready": ready,
        "burst_pods_per_second": BURST / ready,
        "burst_30_gone": statistics.median(gone),
    }


async def churn(client: Client, pods: Pods, image: str) -> dict[str, float]:
    """Pods that are made, become Ready, are deleted and gone, eight at a time: how many lives a second."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def live(number: int) -> None:
        name = f"churn-{number}"
        async with turn:
            pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE), spec=pod_spec(image))
            await client.create(pod)
            await pods.until(lambda found: any(p.metadata.name == name and is_ready(p) for p in found))
            await client.delete(core_v1.Pod, name, NAMESPACE)
            await pods.until(lambda found: all(p.metadata.name != name for p in found))

    began = time.perf_counter()
    await asyncio.gather(*(live(number) for number in range(CHURN)))
    return {"churn_pods_per_second": CHURN / (time.perf_counter() - began)}


def service(name: str, selector: dict[str, str], port: int = 80) -> core_v1.Service:
    return core_v1.Service(
        metadata=meta_v1.ObjectMeta(name=name, namespace=NAMESPACE),
        spec=core_v1.ServiceSpec(selector=selector, ports=[core_v1.ServicePort(port=port)]),
    )


async def answers(address: str) -> bool:
    """True when something that speaks HTTP answers: a bare connect proves nothing."""
    try:
        async with asyncio.timeout(0.25):
            reader, writer = await asyncio.open_connection(address, 80)
            writer.write(b"GET / HTTP/1.0\r\n\r\n")
            line = await reader.readline()
            writer.close()
            return line.startswith(b"HTTP/1.")
    except OSError:
        return False


async def services(client: Client, pods: Pods, image: str) -> dict[str, float]:
    """Service create call to its ClusterIP answering, beside 0 and 1 000 other Services."""
    spec = core_v1.PodSpec(
        containers=[
            core_v1.Container(
                name="main",
                image=image,
                command=["sh", "-c", "echo ok >/tmp/index.html; exec httpd -f -p 80 -h /tmp"],
                readiness_probe=core_v1.Probe(tcp_socket=core_v1.TCPSocketAction(port=80), period_seconds=1),
            )
        ],
        termination_grace_period_seconds=1,
    )
    labels = {"app": "target"}
    await client.create(
        core_v1.Pod(metadata=meta_v1.ObjectMeta(name="target", namespace=NAMESPACE, labels=labels), spec=spec)
    )
    await pods.until(lambda found: any(is_ready(p) for p in found))
    out: dict[str, float] = {}
    made = 0
    for others in SERVICES:
        while made < others:
            batch = range(made, min(made + 50, others))
            await asyncio.gather(*(client.create(service(f"other-{n}", {"app": "target"})) for n in batch))
            made = batch.stop
        if others:
            await settled(client, f"other-{others - 1}")
        times = []
        for number in range(SERVICE_TRIES):
            began = time.perf_counter()
            found = await client.create(service(f"probe-{others}-{number}", labels))
            while not await answers(found.spec.cluster_ip or ""):
                await asyncio.sleep(0.001)
            times.append(time.perf_counter() - began)
        out[f"service_answers_beside_{others}_p50"] = statistics.median(times)
    return out


async def settled(client: Client, name: str) -> None:
    """Wait until the last of many Services answers, so that its making is not measured with the next."""
    found = await client.get(core_v1.Service, name, NAMESPACE)
    while not await answers(found.spec.cluster_ip or ""):
        await asyncio.sleep(0.05)
    await asyncio.sleep(1)


PARTS: dict[str, Callable[[Client, Pods, str], Awaitable[dict[str, float]]]] = {
    "pod": single_pods,
    "burst": burst,
    "churn": churn,
    "services": services,
}


async def ready_for_pods(client: Client, image: str) -> None:
    """Wait until the namespace has what its pods need: an account, with a token in old versions, and the root certificate."""
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="first", namespace=NAMESPACE), spec=pod_spec(image))
    while True:
        try:
            await client.create(pod, dry_run=True)
            await client.get(core_v1.ConfigMap, "kube-root-ca.crt", NAMESPACE)
            return
        except StatusError:
            await asyncio.sleep(0.02)


async def main() -> None:
    path, image, *parts = sys.argv[1:]
    client = Client(HttpsTransport(kubeconfig.load(path)))
    result: dict[str, Any] = {}
    try:
        await client.create(core_v1.Namespace(metadata=meta_v1.ObjectMeta(name=NAMESPACE)))
        await ready_for_pods(client, image)
        async with watching(client) as pods:
            for part in parts:
                result.update(await PARTS[part](client, pods, image))
        await client.delete(core_v1.Namespace, NAMESPACE)
    finally:
        await client.close()
    print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
