"""A node in small: containerd, one pod, and the kubelet's API served over TLS, all in a network namespace."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.attached_clients import AttachedClients
from agent.interfaces import PodView
from agent.probes.probe_metrics import ProbeMetrics
from agent.runtime_messages import container_record, sandbox_record
from agent.server import app, listeners
from agent.server.authorization import Authorizer
from agent.usage.collector import Collector
from agent.usage.endpoints import UsageEndpoints
from agent.volumes.local_path import LocalPathVolumes
from cri.client import Client
from cri.messages import (
    ContainerConfig,
    ContainerMetadata,
    ImageSpec,
    LinuxContainerConfig,
    LinuxContainerSecurityContext,
    LinuxPodSandboxConfig,
    NamespaceMode,
    NamespaceOption,
    PodSandboxConfig,
    PodSandboxMetadata,
)
from kube import pki
from kube.api import core_v1, meta_v1
from kube.clock import SYSTEM
from kube.delegated_authentication import Authenticator
from tests.support import images
from tests.support.containerd import Containerd, start_containerd
from tests.support.netns import Namespace


@dataclass
class OnePod:
    """The pods of a node that has one: `main` runs the script, `web` answers HTTP on port 8080."""

    client: Client
    sandbox_id: str
    containers: dict[str, str]
    pod: core_v1.Pod
    seen: PodView = field(init=False)

    async def refresh(self) -> None:
        """Read the runtime anew."""
        runtime = self.client.runtime
        records = [container_record(await runtime.container_status(found)) for found in self.containers.values()]
        sandbox = sandbox_record(await runtime.pod_sandbox_status(self.sandbox_id))
        statuses = []
        for record in records:
            state = core_v1.ContainerState(running=core_v1.ContainerStateRunning())
            if record.exited:
                terminated = core_v1.ContainerStateTerminated(container_id=f"containerd://{record.id}")
                state = core_v1.ContainerState(terminated=terminated)
            statuses.append(
                core_v1.ContainerStatus(name=record.name, container_id=f"containerd://{record.id}", state=state)
            )
        self.pod.status.container_statuses = statuses
        self.seen = PodView(self.pod, tuple(records), sandbox)

    def views(self) -> list[PodView]:
        return [self.seen]

    def view(self, namespace: str, name: str) -> PodView | None:
        return self.seen if (namespace, name) == ("default", "pod") else None

    def by_uid(self) -> dict[str, PodView]:
        return {"uid": self.seen}


@dataclass
class Served:
    """The API in the middle of a test."""

    pods: OnePod
    port: int
    tls: ssl.SSLContext
    folder: Path
    logs: Path
    attached: AttachedClients

    def url(self, path: str, scheme: str = "https") -> str:
        return f"{scheme}://127.0.0.1:{self.port}{path}"


@dataclass
class Node:
    """Runs test bodies in the node's namespace."""

    daemon: Containerd
    folder: Path

    def run(self, body: Callable[[Served], Awaitable[None]], script: str = "cat") -> None:
        """Serve a pod whose main container runs the script, and hold the body against it."""

        async def inside() -> None:
            async with asyncio.timeout(180), Client(self.daemon.endpoint) as client:
                parent = f"/{self.daemon.name}/pod"
                async with (
                    _pod(client, self.folder / "pods", script, parent) as pods,
                    _served(pods, self.folder) as served,
                ):
                    await body(served)

        Namespace(self.daemon.name).inside(inside, timeout=190)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Containerd]:
    with start_containerd(f"agent-server-{os.getpid()}") as daemon:
        yield daemon


@pytest.fixture
def node(daemon: Containerd, tmp_path: Path) -> Node:
    return Node(daemon, tmp_path)


@asynccontextmanager
async def _pod(client: Client, logs: Path, script: str, cgroup_parent: str) -> AsyncIterator[OnePod]:
    scripts = {"main": script, "web": "mkdir -p /www; echo served > /www/index.html; httpd -f -p 8080 -h /www"}
    config = PodSandboxConfig(
        metadata=PodSandboxMetadata(name="pod", uid="uid", namespace="default"),
        hostname="pod",
        log_directory=str(logs / "default_pod_uid"),
        linux=LinuxPodSandboxConfig(cgroup_parent=cgroup_parent),
    )
    sandbox_id = await client.runtime.run_pod_sandbox(config)
    try:
        containers = {}
        for name, text in scripts.items():
            options = NamespaceOption(pid=NamespaceMode.CONTAINER)
            container = ContainerConfig(
                metadata=ContainerMetadata(name=name),
                image=ImageSpec(image=images.BUSYBOX_IMAGE),
                command=["sh", "-c", text],
                log_path=f"{name}/0.log",
                labels={"io.kubernetes.container.name": name},
                stdin=name == "main",
                stdin_once=name == "main",
                linux=LinuxContainerConfig(security_context=LinuxContainerSecurityContext(namespace_options=options)),
            )
            containers[name] = await client.runtime.create_container(sandbox_id, container, config)
            await client.runtime.start_container(containers[name])
        spec = core_v1.PodSpec(containers=[core_v1.Container(name=name, image="busybox") for name in scripts])
        metadata = meta_v1.ObjectMeta(name="pod", namespace="default", uid="uid")
        pods = OnePod(client, sandbox_id, containers, core_v1.Pod(metadata=metadata, spec=spec))
        await pods.refresh()
        yield pods
    finally:
        await client.runtime.stop_pod_sandbox(sandbox_id)
        await client.runtime.remove_pod_sandbox(sandbox_id)


@asynccontextmanager
async def _served(pods: OnePod, folder: Path) -> AsyncIterator[Served]:
    authority = pki.new_ca("test", SYSTEM.now())
    authority.save(folder, "ca")
    pki.issue(authority, "node", sans=["127.0.0.1"], usages=[pki.SERVER], now=SYSTEM.now()).save(folder, "server")
    pki.issue(authority, "kube-apiserver", ["system:masters"], now=SYSTEM.now()).save(folder, "client")

    collector = Collector(
        pods.client,
        pods,
        SYSTEM,
        node_name="node",
        root_dir=folder,
        pods_dir=folder / "volumes-of-pods",
        logs_dir=folder / "pods",
    )
    endpoints = UsageEndpoints(collector, pods, "node", ProbeMetrics())
    parts = app.ServerDependencies(
        pods=pods,
        runtime=pods.client.runtime,
        clock=SYSTEM,
        pod_logs_dir=folder / "pods",
        health=lambda: "",
        configuration=dict,
        summary=endpoints.summary,
        remove_volume=LocalPathVolumes(folder / "local-path").remove,
        metrics_texts=endpoints.texts(),
    )
    authenticator = Authenticator(None, SYSTEM, cache_seconds=120, anonymous=False)
    authorizer = Authorizer(None, "node", SYSTEM, allowed_seconds=300, denied_seconds=30)
    listener = listeners.Listener(
        address="127.0.0.1",
        port=0,
        cert_file=folder / "server.crt",
        key_file=folder / "server.key",
        client_ca_file=folder / "ca.crt",
    )
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(listeners.serve(app.build(parts, authenticator, authorizer), listener, port.set_result))
    try:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        tls.load_cert_chain(folder / "client.crt", folder / "client.key")
        yield Served(pods, await port, tls, folder, folder / "pods", parts.attached)
    finally:
        task.cancel()
        await asyncio.wait({task})
