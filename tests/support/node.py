"""A node for tests: a containerd of its own and the agent in this process, against any API server.

`async with agent_node(tmp_path, containerd, server) as node:` starts it; `node.stop()` and `node.start()` restart the agent
alone. Pods' addresses lie in containerd's network namespace, which this process is not in: nothing here dials them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from agent import main
from agent.cgroups.cgroupfs import CgroupFS
from agent.config import AgentConfig
from agent.volumes import mounts
from cri.client import Client as RuntimeClient
from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest

DEADLINE = 60.0


class FastClock:
    """The system's clock at a multiple of its speed, so that back-offs and grace periods pass quickly."""

    steady = False

    def __init__(self, speed: float) -> None:
        self.speed, self._began, self._start = speed, time.monotonic(), datetime.now(UTC)

    def monotonic(self) -> float:
        return (time.monotonic() - self._began) * self.speed

    def boottime(self) -> float:
        return self.monotonic()

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an administrator or NTP does."""
        self._start += timedelta(seconds=seconds)

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self.monotonic())

    def nanoseconds(self) -> int:
        return int(self.now().timestamp() * 1e9)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self.speed)

    async def sleep_deferrable(self, seconds: float) -> None:
        await self.sleep(seconds)


class NodeUnderTest:
    """A running agent and what its tests look at."""

    def __init__(self, config: AgentConfig, client: Client, clock: Clock = SYSTEM) -> None:
        self.config, self.client, self.clock = config, client, clock
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> asyncio.Task[None]:
        """Start the agent and return at once."""
        self._task = asyncio.create_task(main.run(self.config, clock=self.clock), name="agent")
        return self._task

    async def start(self) -> None:
        """Start the agent and return when the node is Ready."""
        ready = asyncio.Event()
        self._task = asyncio.create_task(main.run(self.config, ready=ready.set, clock=self.clock), name="agent")
        waiting = asyncio.create_task(ready.wait())
        done, _ = await asyncio.wait({self._task, waiting}, timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._task in done:
            ended, self._task = self._task, None
            ended.result()
        assert ready.is_set(), "the node did not become Ready"

    async def stop(self) -> None:
        """Stop the agent; containers run on."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
            self._task = None

    # -- pods -----------------------------------------------------------------------------------------------------
    async def create(self, name: str, spec: dict[str, Any], **metadata: Any) -> core_v1.Pod:
        """Create a pod bound to this node; JSON-shaped spec."""
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", **metadata},
            "spec": {"nodeName": self.config.node_name, "terminationGracePeriodSeconds": 2, **spec},
        }

        return await self.client.create(msgspec.convert(body, core_v1.Pod))

    async def get(self, name: str) -> core_v1.Pod:
        return await self.client.get(core_v1.Pod, name, "default")

    async def wait(
        self, name: str, condition: Callable[[core_v1.Pod], object], timeout: float = DEADLINE
    ) -> core_v1.Pod:
        """Wait until the pod meets the condition; fail with its last status."""
        end = time.monotonic() + timeout
        pod = None
        while time.monotonic() < end:
            pod = await self.get(name)
            if condition(pod):
                return pod
            await asyncio.sleep(0.02)
        raise AssertionError(f"pod {name} is not as expected: {pod.status if pod else None}")

    async def ready(self, name: str) -> core_v1.Pod:
        return await self.wait(name, is_ready)

    async def gone(self, name: str, timeout: float = DEADLINE) -> None:
        """Wait until the pod has left the API."""
        end = time.monotonic() + timeout
        while time.monotonic() < end:
            try:
                await self.get(name)
            except StatusError as error:
                assert error.not_found, error
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"pod {name} is still there: {(await self.get(name)).metadata}")

    async def delete(self, name: str, grace: int | None = None) -> None:
        await self.client.delete(core_v1.Pod, name, "default", grace_period_seconds=grace)

    async def events(self, name: str) -> list[tuple[str, str]]:
        """Return (reason, message) of the pod's events, oldest first."""
        found = (await self.client.list(core_v1.Event, "default", field_selector=f"involvedObject.name={name}")).items
        return [(e.reason or "", e.message or "") for e in sorted(found, key=lambda e: e.metadata.name or "")]

    async def event(self, name: str, reason: str) -> str:
        """Wait for an event of the reason and return its message."""
        found: list[str] = []

        async def there() -> bool:
            found[:] = [message for r, message in await self.events(name) if r == reason]
            return bool(found)

        await eventually(there, f"no event {reason} on {name}")
        return found[0]

    async def execute(self, pod: core_v1.Pod, *command: str, container: str = "") -> str:
        """Run a command in the pod's (first) container and return what it prints."""
        statuses = [*pod.status.container_statuses, *pod.status.init_container_statuses]
        status = next(s for s in statuses if not container or s.name == container)
        async with RuntimeClient(self.config.runtime_endpoint) as runtime:
            answer = await runtime.runtime.exec_sync((status.container_id or "").partition("://")[2], command)
        assert answer.exit_code == 0, (answer.exit_code, answer.stderr)
        return answer.stdout.decode()


def is_ready(pod: core_v1.Pod) -> bool:
    return any(c.type == "Ready" and c.status == "True" for c in pod.status.conditions)


async def eventually(check: Callable[[], Awaitable[object]], message: str, timeout: float = DEADLINE) -> None:
    """Poll until the check is true; fail with the message."""
    end = time.monotonic() + timeout
    while not await check():
        assert time.monotonic() < end, message
        await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def agent_node(
    folder: Path,
    containerd: Containerd | FakeRuntime,
    server: ApiUnderTest,
    name: str = "node-1",
    *,
    clock: Clock = SYSTEM,
    start: bool = True,
    **changes: Any,
) -> AsyncIterator[NodeUnderTest]:
    """Start the agent with its files below `folder`; `changes` replace fields of its configuration.

    Without `start` everything is there but the agent: a test runs it in a process of its own.
    """
    user = (f"system:node:{name}", ("system:nodes",))
    config = AgentConfig(
        node_name=name,
        hostname=name,
        kubeconfig=server.kubeconfig(*user),
        root_dir=folder / "kubelet",
        cert_dir=folder / "kubelet/pki",
        pod_logs_dir=folder / "pods-logs",
        container_logs_dir=folder / "container-logs",
        runtime_endpoint=containerd.endpoint,
        node_ips=("192.0.2.10",),
        cgroup_root=f"/{containerd.name if isinstance(containerd, Containerd) else 'none'}",
        cgroups_per_qos=isinstance(containerd, Containerd),
        cluster_dns=("10.96.0.10",),
        cluster_domain="cluster.local",
        address="127.0.0.1",
        port=0,
        healthz_port=0,
        enable_server=False,
        fail_swap_on=False,
    )
    config = dataclasses.replace(config, **changes)
    node = NodeUnderTest(config, server.client(), clock)
    try:
        await _default_account(node.client, server)
        if start:
            await node.start()
        yield node
    finally:
        await node.stop()
        for point in mounts.mount_points(folder):
            mounts.unmount(point)
        if config.cgroups_per_qos:
            CgroupFS().remove(config.cgroup_root.strip("/"))


async def _default_account(client: Client, server: ApiUnderTest) -> None:
    """Make what the controllers make in a namespace, where they do not run."""
    metadata = meta_v1.ObjectMeta(name="default", namespace="default")
    root = meta_v1.ObjectMeta(name="kube-root-ca.crt", namespace="default")
    authority = (server.directory / "pki" / "ca.crt").read_text()
    for obj in (
        core_v1.ServiceAccount(metadata=metadata),
        core_v1.ConfigMap(metadata=root, data={"ca.crt": authority}),
    ):
        with contextlib.suppress(StatusError):
            await client.create(obj)
