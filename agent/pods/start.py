"""One container's start: its image, its configuration, create, start, the postStart hook, with the events and waiting reasons.

A step that fails leaves a reason in the status and a moment from which it is tried again. A sandbox that died meanwhile is
no failure of the container's.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from agent.contracts import HookError
from agent.images.manager import ImageError
from agent.lifecycle import Kill, Kind, Start, container_hash, find_container, grace_of
from agent.pods import actuation
from agent.pods import end as pod_end
from agent.pods import setup as pod_setup
from agent.pods.sandbox import was_lost
from agent.podspec.environment import ConfigError
from agent.podspec.security import AnyContainer
from agent.podspec.userns import UserNamespaceError
from agent.records import ContainerRecord, State
from agent.status.container import Waiting
from agent.volumes.image import pulled
from cri.errors import CRIError
from kube.api import core_v1
from kube.events import NORMAL, WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

log = logging.getLogger(__name__)

_TYPES = {Kind.INIT: "init_container", Kind.MAIN: "container", Kind.EPHEMERAL: "ephemeral_container"}
"""Upstream's names in metrics."""


async def start_container(worker: PodWorker, start: Start) -> bool:
    """Start one container; True where it runs, otherwise its waiting reason says why not."""
    found = find_container(worker.allocated, start.name)
    sandbox = worker.runtime.sandbox
    if found is None or sandbox is None:
        return False
    container, kind = found
    tools, pod = worker.tools, worker.allocated
    worker.crash_loop.count(start.name)
    tools.observed.started_containers.inc(_TYPES[kind])
    try:
        await pod_setup.find_users(tools, pod)
        config = worker.sandbox_config()
        if start.restart_count:  # for another size of the pod, maybe: what is above a container must not be smaller
            await pod_setup.make_folders(tools, pod)
        secrets = await pod_setup.pull_secrets(tools, pod)
        path = pod_setup.field_path(kind, start.name)
        image = await tools.images.ensure(pod, container, path, secrets, config)
        mounted = await pulled(
            tools.images, tools.node.runtime, pod, container, worker.mounted or {}, path, secrets, config
        )
        made = await pod_setup.make_container_config(
            tools,
            pod,
            container,
            start,
            image=image,
            pod_ips=tools.node.host_ips if pod.spec.host_network else sandbox.ips,
            mounted=mounted,
            static=worker.static,
            target_id=_target(worker, container),
        )
    except ImageError as error:
        worker.event(WARNING, "Failed", f"Error: {error.reason}", start.name)
        tools.observed.started_container_errors.inc(_TYPES[kind], error.reason)
        worker.waiting[start.name] = Waiting(error.reason, error.message)
        worker.retry_at[start.name] = error.retry_at
        return False
    except (ConfigError, UserNamespaceError, OSError) as error:
        return _failed(worker, start.name, "CreateContainerConfigError", str(error))
    try:
        container_id = await tools.runtime.create(sandbox.id, made, config)
    except CRIError as error:
        if await was_lost(worker, sandbox.id, start.name):
            return True
        return _failed(worker, start.name, "CreateContainerError", error.message)
    # Known before it starts, so that news of a quick end finds it.
    worker.runtime = worker.runtime.with_container(
        ContainerRecord(
            id=container_id,
            name=start.name,
            state=State.CREATED,
            restart_count=start.restart_count,
            sandbox_id=sandbox.id,
            hash=container_hash(container),
            created_at=tools.now(),
        )
    )
    worker.event(NORMAL, "Created", "Container created", start.name)
    try:
        await tools.runtime.start(container_id)
    except CRIError as error:
        if await was_lost(worker, sandbox.id, start.name):
            await worker.remove_container(container_id)
            return True
        await worker.reload(container_id)
        return _failed(worker, start.name, "RunContainerError", error.message)
    worker.event(NORMAL, "Started", "Container started", start.name)
    pod_setup.link_log(tools, pod, made, container_id)
    await worker.reload(container_id)
    worker.waiting.pop(start.name, None)
    await actuation.note(worker, container, container_id)
    worker.succeeded(start.name)
    if container.lifecycle is not None and container.lifecycle.post_start is not None:
        # Nobody sees or probes the container as running before its hook has ended.
        with worker.quiet():
            started = await _post_start(worker, container, container_id, container.lifecycle.post_start)
        if not started:
            return False
    worker.probe()
    return True


def _failed(worker: PodWorker, name: str, reason: str, message: str) -> bool:
    found = find_container(worker.pod, name)
    if found is not None:
        worker.tools.observed.started_container_errors.inc(_TYPES[found[1]], reason)
    worker.event(WARNING, "Failed", f"Error: {message}", name)
    worker.waiting[name] = Waiting(reason, message)
    worker.retry_later(name)
    return False


def _target(worker: PodWorker, container: AnyContainer) -> str:
    """Return the running container whose process namespace a debug container joins."""
    name = container.target_container_name if isinstance(container, core_v1.EphemeralContainer) else None
    record = worker.runtime.latest(name) if name else None
    return record.id if record is not None and record.running else ""


async def _post_start(
    worker: PodWorker, container: AnyContainer, container_id: str, handler: core_v1.LifecycleHandler
) -> bool:
    """Run the postStart hook; a container whose hook fails is killed."""
    assert isinstance(container, core_v1.Container)
    sandbox = worker.runtime.sandbox
    ip = sandbox.ips[0] if sandbox and sandbox.ips else ""
    try:
        await worker.tools.hooks.run(worker.pod, ip, container, container_id, handler)
    except HookError as error:
        worker.event(WARNING, "FailedPostStartHook", "PostStartHook failed", container.name)
        log.info("pod %s: postStart hook of %s: %s", worker.uid, container.name, error)
        kill = Kill(container_id, container.name, "FailedPostStartHook")
        await pod_end.stop_container(worker, kill, grace_of(worker.pod))
        worker.waiting[container.name] = Waiting("PostStartHookError", f"PostStart handler: {error}")
        return False
    return True
