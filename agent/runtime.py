"""The container runtime as the pods' steps use it: records in and out, heavy calls limited, no call abandoned on cancel.

A pod's sync may be cancelled at any moment because the pod is to terminate. A sandbox or container that is just being created
would be leaked then, so such calls run to their end before the cancellation continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from agent import runtime_messages, runtime_records
from agent.attached_clients import DRAIN_SECONDS, AttachedClients
from agent.limiter import Limiter
from agent.list_budget import CONTAINER_BYTES, CONTAINER_PARTS, SANDBOX_BYTES, SANDBOX_PARTS, ListBudget
from agent.record_reads import RecordReads
from agent.runtime_records import ContainerRecord, PodRuntime, SandboxRecord
from cri.client import Client
from cri.errors import MessageTooLargeError, NotFoundError
from cri.messages import Container, ContainerConfig, PodSandbox, PodSandboxConfig

log = logging.getLogger(__name__)
T = TypeVar("T")

START, SANDBOX, STOP = 0, 2, 1
"""Priorities: a container's start makes a pod ready; a stop gives resources back; a sandbox begins a pod."""


@dataclass(slots=True)
class RuntimePod:
    """A pod as the runtime knows it, by its labels; what the agent starts from after its own restart."""

    uid: str
    namespace: str
    name: str
    runtime: PodRuntime = field(default_factory=PodRuntime)


class _ListedPod:
    """A pod while the runtime's lists are read, and its records from before."""

    def __init__(self, pod: RuntimePod, old: PodRuntime) -> None:
        self.old = old
        self.old_sandboxes = {sandbox.id: sandbox for sandbox in old.sandboxes}
        self.sandboxes: list[SandboxRecord] = []
        self.containers: list[ContainerRecord] = []
        self._pod = pod

    def whole(self) -> RuntimePod:
        self._pod.runtime = PodRuntime.of(self.sandboxes, self.containers)
        return self._pod


class Runtime:
    """One runtime, its calls bounded to `limit` at a time; `folders` returns the UIDs of the pods that have folders."""

    def __init__(self, client: Client, limit: int = 4, folders: Callable[[], Iterable[str]] = tuple) -> None:
        self.client = client
        self.limiter = Limiter(limit)
        self.attached = AttachedClients()
        self.sandbox_list = ListBudget(SANDBOX_BYTES, SANDBOX_PARTS)
        self.container_list = ListBudget(CONTAINER_BYTES, CONTAINER_PARTS)
        self._folders = folders
        self._reads = RecordReads(client.runtime)

    async def run_sandbox(self, config: PodSandboxConfig, handler: str) -> SandboxRecord:
        """Make a sandbox and return it with its addresses. Raise CRIError."""
        async with self.limiter.slot(SANDBOX, config.metadata.namespace):
            self.sandbox_list.created(config.labels, config.annotations)
            sandbox_id = await whole(self.client.runtime.run_pod_sandbox(config, handler))
        return runtime_messages.sandbox_record(await self.client.runtime.pod_sandbox_status(sandbox_id))

    async def create(self, sandbox_id: str, config: ContainerConfig, sandbox: PodSandboxConfig) -> str:
        """Create a container and return its ID. Raise CRIError."""
        async with self.limiter.slot(START, sandbox.metadata.namespace):
            self.container_list.created(config.labels, config.annotations)
            return await whole(self.client.runtime.create_container(sandbox_id, config, sandbox))

    async def start(self, container_id: str, namespace: str) -> None:
        """Start a created container of a pod in a namespace. Raise CRIError."""
        async with self.limiter.slot(START, namespace):
            await whole(self.client.runtime.start_container(container_id))

    async def stop(self, container_id: str, grace: int) -> None:
        """Stop a container; returns when it is dead. A container that is gone is stopped. Raise CRIError.

        Attach sessions are ended after the grace period: one whose client does not read keeps the container from being dead.
        """
        with contextlib.suppress(NotFoundError), self.attached.ended_after(container_id, grace + DRAIN_SECONDS):
            await self.client.runtime.stop_container(container_id, grace)

    async def stop_sandbox(self, sandbox_id: str, namespace: str) -> None:
        """Kill what runs in a sandbox and take its network down. Raise CRIError."""
        async with self.limiter.slot(STOP, namespace):
            with contextlib.suppress(NotFoundError):
                await whole(self.client.runtime.stop_pod_sandbox(sandbox_id))

    async def remove_sandbox(self, sandbox_id: str, namespace: str) -> None:
        """Remove a stopped sandbox with its containers. Raise CRIError."""
        async with self.limiter.slot(SANDBOX, namespace):
            with contextlib.suppress(NotFoundError):
                await self.client.runtime.remove_pod_sandbox(sandbox_id)

    async def remove(self, container_id: str) -> None:
        """Remove a dead container. Raise CRIError."""
        with contextlib.suppress(NotFoundError):
            await self.client.runtime.remove_container(container_id)

    async def container(self, container_id: str, sandbox_id: str = "") -> ContainerRecord | None:
        """Read one container; None if it is gone. Raise CRIError."""
        return await self._reads.container(container_id, sandbox_id)

    async def sandbox(self, sandbox_id: str) -> SandboxRecord | None:
        """Read one sandbox; None if it is gone. Raise CRIError."""
        return await self._reads.sandbox(sandbox_id)

    async def of_pod(self, uid: str) -> PodRuntime:
        """List what there is of one pod. Raise CRIError."""
        labels = {runtime_records.POD_UID: uid}
        sandboxes, containers = await asyncio.gather(
            self.client.runtime.list_pod_sandboxes(labels=labels), self.client.runtime.list_containers(labels=labels)
        )
        known_sandboxes, known_containers = [], []
        for sandbox in sandboxes:
            known: SandboxRecord | None = runtime_messages.listed_sandbox(sandbox)
            if known is not None and known.ready:
                known = await self.sandbox(known.id)
            if known is not None:
                known_sandboxes.append(known)
        for listed in containers:
            namespace = listed.labels.get(runtime_records.POD_NAMESPACE, "")
            record = await self._reads.container(listed.id, listed.pod_sandbox_id, namespace)
            if record is not None:
                known_containers.append(record)
        return PodRuntime.of(known_sandboxes, known_containers)

    async def pods(self, known: dict[str, PodRuntime] | None = None) -> dict[str, RuntimePod]:
        """List everything, by pod UID; the status of what has the same state as in `known` is not read again."""
        before, nothing = known or {}, PodRuntime()
        sandboxes, containers, unlisted = await self._listed(before)
        self.sandbox_list.listed(sandboxes)
        self.container_list.listed(containers)
        found: dict[str, _ListedPod] = {}

        def pod(labels: Any) -> _ListedPod | None:
            uid = labels.get(runtime_records.POD_UID, "")
            if not uid:
                return None  # not a pod of a kubelet's
            if uid not in found:
                listed = RuntimePod(
                    uid, labels.get(runtime_records.POD_NAMESPACE, ""), labels.get(runtime_records.POD_NAME, "")
                )
                found[uid] = _ListedPod(listed, before.get(uid, nothing))
            return found[uid]

        for sandbox in sandboxes:
            if (owner := pod(sandbox.labels)) is None:
                continue
            listed = runtime_messages.listed_sandbox(sandbox)
            old = owner.old_sandboxes.get(listed.id)
            unread = listed.ready and old is not None and not old.ips and not old.host_network
            if old is not None and (old.ready == listed.ready or not listed.ready) and not unread:
                record: SandboxRecord | None = replace(old, ready=listed.ready)
            else:
                record = await self._reads.listed_sandbox(sandbox, old) if listed.ready else listed
            if record is not None:
                owner.sandboxes.append(record)
        for container in containers:
            if (owner := pod(container.labels)) is None:
                continue
            seen = owner.old.find(container.id)
            if seen is None or seen.unread or seen.state is not runtime_messages.listed_state(container):
                seen = await self._reads.listed_container(container, seen)
            if seen is not None:
                owner.containers.append(seen)
        kept = {uid: RuntimePod(uid, "", "", before[uid]) for uid in unlisted if uid in before}
        return {uid: each.whole() for uid, each in found.items()} | kept

    async def _listed(self, known: Iterable[str]) -> tuple[list[PodSandbox], list[Container], list[str]]:
        """List everything; if it is too large for a message, pod by pod: those of the UIDs, and those with folders.

        The last are UIDs of pods that are too large by themselves.
        """
        runtime = self.client.runtime
        try:
            return *await asyncio.gather(runtime.list_pod_sandboxes(), runtime.list_containers()), []
        except MessageTooLargeError as error:
            log.warning("the runtime's list is too large, each pod is listed: %s", error)
        sandboxes, containers, unlisted = list[PodSandbox](), list[Container](), list[str]()
        for uid in {*known, *await asyncio.to_thread(self._folders)}:
            labels = {runtime_records.POD_UID: uid}
            try:
                some = await asyncio.gather(
                    runtime.list_pod_sandboxes(labels=labels), runtime.list_containers(labels=labels)
                )
            except MessageTooLargeError as error:
                log.error("pod %s is too large to be listed, its records stay as they are: %s", uid, error)
                unlisted.append(uid)
                continue
            sandboxes += some[0]
            containers += some[1]
        return sandboxes, containers, unlisted


async def whole(call: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end even if the caller is cancelled meanwhile; the cancellation is raised after it.

    The result is lost to the caller then, but not to the runtime: the worker lists the pod before it ends it.
    """
    task = asyncio.ensure_future(call)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with contextlib.suppress(Exception):
            await task
        raise
