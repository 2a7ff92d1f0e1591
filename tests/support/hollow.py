"""Hollow nodes: they register, make pods that are bound to them Running and Ready at once, and let deleted ones go.

For tests of the control plane against a real API server, where containers are not what is looked at.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from kube.api import coordination_v1, core_v1, meta_v1
from kube.client import STRATEGIC, Client
from kube.clock import SYSTEM, Clock, format_micro_time, format_time
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, Informer
from kube.object_names import name_of, namespace_of

LEASES, RENEW_SECONDS = "kube-node-lease", 10.0


def ready_condition(now: str) -> core_v1.NodeCondition:
    return core_v1.NodeCondition(
        type="Ready",
        status="True",
        reason="KubeletReady",
        message="kubelet is posting ready status",
        last_heartbeat_time=now,
        last_transition_time=now,
    )


class HollowNodes:
    """The kubelets of all nodes of a cluster. `behave` decides what a pod becomes (phase, ready).

    Their leases are renewed, or controllers would take nodes for silent after 50 s; `silent` leaves that to the test.
    """

    def __init__(self, client: Client, clock: Clock = SYSTEM, *, silent: bool = False) -> None:
        self._client, self._clock, self._silent = client, clock, silent
        self._names: list[str] = []
        self.pods: Informer[core_v1.Pod] = Informer(client, core_v1.Pod)
        self.behave: Callable[[core_v1.Pod], tuple[str, bool]] = lambda pod: ("Running", True)
        self._addresses = itertools.count(1)
        self._controller = Controller("hollow", self._reconcile, workers=8)
        self.pods.subscribe(self._changed)

    async def register(self, name: str, cpu: str = "4", memory: str = "8Gi", pods: str = "110", **labels: str) -> None:
        """Create a node that is ready."""
        known = {"kubernetes.io/hostname": name, **{k.replace("__", "/"): v for k, v in labels.items()}}
        node = core_v1.Node(metadata=meta_v1.ObjectMeta(name=name, labels=known))
        await self._client.create(node)
        resources: dict[str, str | int | float] = {"cpu": cpu, "memory": memory, "pods": pods}
        ready = ready_condition(format_time(self._clock.now()))
        status = core_v1.NodeStatus(allocatable=resources, capacity=resources, conditions=[ready])
        patch: dict[str, Any] = {"status": msgspec.to_builtins(status)}
        await self._client.patch(core_v1.Node, name, "", patch, subresource="status")
        await self._client.patch(core_v1.Node, name, "", {"spec": {"taints": None}})
        self._names.append(name)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            group.create_task(self._controller.run())
            if not self._silent:
                group.create_task(self._beat())

    async def _beat(self) -> None:
        while True:
            for name in tuple(self._names):
                with contextlib.suppress(StatusError):
                    await self._renew(name)
            await asyncio.sleep(RENEW_SECONDS)

    async def _renew(self, name: str) -> None:
        spec = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": format_micro_time(self._clock.now())}
        try:
            await self._client.patch(coordination_v1.Lease, name, LEASES, {"spec": spec})
        except StatusError as error:
            if error.not_found:
                body = {"metadata": {"name": name, "namespace": LEASES}, "spec": spec}
                await self._client.create(msgspec.convert(body, coordination_v1.Lease))

    def _changed(self, change: Change[core_v1.Pod]) -> None:
        if change.type != "DELETED" and change.new.spec.node_name:
            self._controller.enqueue(change.key)

    def again(self) -> None:
        """`behave` has changed: ask it anew about every pod."""
        for key in list(self.pods.keys()):
            self._controller.enqueue(key)

    async def _reconcile(self, key: str) -> None:
        pod = self.pods.get(key)
        if pod is None or not pod.spec.node_name:
            return
        name, namespace = name_of(pod), namespace_of(pod)
        with contextlib.suppress(StatusError):
            if pod.metadata.deletion_timestamp is not None:
                await self._client.delete(core_v1.Pod, name, namespace, grace_period_seconds=0)
                return
            phase, ready = self.behave(pod)
            now = format_time(self._clock.now())
            was = {c.type: c.status for c in pod.status.conditions}.get("Ready")
            if (pod.status.phase, was) == (phase, str(ready)) or pod.status.phase in ("Succeeded", "Failed"):
                return
            ip = pod.status.pod_ip or f"10.244.{next(self._addresses) >> 8}.{next(self._addresses) & 255}"
            conditions = [{"type": "Ready", "status": str(ready), "lastTransitionTime": now}]
            status = {"phase": phase, "podIP": ip, "podIPs": [{"ip": ip}], "conditions": conditions, "startTime": now}
            await self._client.patch(
                core_v1.Pod, name, namespace, {"status": status}, type=STRATEGIC, subresource="status"
            )


@contextlib.asynccontextmanager
async def running(*works: Any) -> AsyncIterator[None]:
    """Run coroutines beside a block; when it is left they are cancelled, and a failure of theirs is raised."""
    tasks = [asyncio.create_task(work) for work in works]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def eventually(check: Callable[[], Any], *, within: float = 60.0) -> Any:
    """Wait until `check` (which may be a coroutine function) gives something true, and return that."""
    last: Any = None
    try:
        async with asyncio.timeout(within):
            while True:
                try:
                    found = check()
                    last = await found if asyncio.iscoroutine(found) else found
                    if last:
                        return last
                except StatusError as error:
                    last = error
                await asyncio.sleep(0.02)
    except TimeoutError as error:
        raise TimeoutError(f"not within {within:g} s; last seen: {last!r}") from error
