"""Starts a container: pulls its image, makes its configuration, creates and starts it, runs its postStart hook.

A failure is recorded as an event and a waiting reason, and the start is retried after a back-off. Where the sandbox died
meanwhile, the container has not failed.
"""

from __future__ import annotations

import logging

from agent.images.manager import ImageError
from agent.interfaces import HookError
from agent.lifecycle import Kill, Kind, Start, container_hash, find_container, grace_of
from agent.pods import setup as pod_setup
from agent.pods.context import PodContext
from agent.pods.steps.probes import probe_containers
from agent.pods.steps.record_updates import reload_container, remove_container
from agent.pods.steps.resize import record_size, set_actuated
from agent.pods.steps.sandbox import sandbox_died
from agent.pods.steps.termination import stop_container
from agent.podspec.environment import ContainerConfigError
from agent.podspec.security import AnyContainer
from agent.podspec.userns import UserNamespaceError
from agent.runtime_records import ContainerRecord, SandboxRecord, State
from agent.status.container import Waiting
from agent.volumes.image import pulled
from cri.errors import CRIError
from cri.messages import ContainerConfig, PodSandboxConfig
from kube import duration
from kube.api import core_v1
from kube.events import NORMAL, WARNING

log = logging.getLogger(__name__)

_TYPES = {Kind.INIT: "init_container", Kind.MAIN: "container", Kind.EPHEMERAL: "ephemeral_container"}
"""Upstream's names in metrics."""


async def start_container(ctx: PodContext, start: Start) -> bool:
    """Start one container; True if it runs, otherwise its waiting reason is set."""
    state, deps = ctx.state, ctx.deps
    pod, sandbox = state.resize.allocated, state.runtime.sandbox
    found = find_container(pod, start.name)
    if found is None or sandbox is None:
        return False
    container, kind = found
    state.crash_loop.count(state.pod, start.name, state.runtime.latest(start.name))
    deps.metrics.started_containers.inc(_TYPES[kind])
    try:
        made, config = await _make_config(ctx, start, container, kind, sandbox)
    except ImageError as error:
        ctx.reporter.event(WARNING, "Failed", f"Error: {error.reason}", start.name)
        deps.metrics.started_container_errors.inc(_TYPES[kind], error.reason)
        state.waiting[start.name] = Waiting(error.reason, error.message)
        state.step_back_off.retry_at[start.name] = error.retry_at
        return False
    except (ContainerConfigError, UserNamespaceError, OSError) as error:
        return _failed(ctx, start.name, "CreateContainerConfigError", str(error))
    await record_size(ctx, container)
    try:
        container_id = await deps.runtime.create(sandbox.id, made, config)
    except CRIError as error:
        if await sandbox_died(ctx, sandbox.id, start.name):
            return True
        return _failed(ctx, start.name, "CreateContainerError", error.message)
    # Recorded before it starts, so that the event of a quick exit finds it.
    _record(ctx, start, container, container_id, sandbox.id)
    ctx.reporter.event(NORMAL, "Created", "Container created", start.name)
    try:
        await deps.runtime.start(container_id, pod.metadata.namespace or "")
    except CRIError as error:
        if await sandbox_died(ctx, sandbox.id, start.name):
            await remove_container(ctx, container_id)
            return True
        await reload_container(ctx, container_id)
        return _failed(ctx, start.name, "RunContainerError", error.message)
    ctx.reporter.event(NORMAL, "Started", "Container started", start.name)
    pod_setup.link_log(deps, pod, made, container_id)
    await reload_container(ctx, container_id)
    state.waiting.pop(start.name, None)
    set_actuated(ctx, container, container_id)
    state.step_back_off.succeeded(start.name)
    if container.lifecycle is not None and container.lifecycle.post_start is not None:
        # The container is not reported as running, nor probed, before its hook has ended.
        with ctx.reporter.paused():
            started = await _post_start(ctx, container, container_id, container.lifecycle.post_start)
        if not started:
            return False
    probe_containers(ctx)
    return True


async def _make_config(
    ctx: PodContext, start: Start, container: AnyContainer, kind: Kind, sandbox: SandboxRecord
) -> tuple[ContainerConfig, PodSandboxConfig]:
    """Pull the image, and return the configurations of the container and its sandbox.

    Raise ImageError, ContainerConfigError, UserNamespaceError, OSError.
    """
    state, deps = ctx.state, ctx.deps
    pod = state.resize.allocated
    await pod_setup.load_ids(deps, pod)
    config = _sandbox_config(ctx)
    if start.restart_count:  # for another size of the pod, maybe: what is above a container must not be smaller
        await pod_setup.make_folders(deps, pod)
    secrets = await pod_setup.pull_secrets(deps, pod)
    path = pod_setup.field_path(kind, start.name)
    image = await deps.images.ensure(pod, container, path, secrets, config)
    mounted = await pulled(
        deps.images, deps.node.runtime, pod, container, state.volumes.mounted or {}, path, secrets, config
    )
    made = await pod_setup.make_container_config(
        deps,
        pod,
        container,
        start,
        image=image,
        pod_ips=deps.node.host_ips if pod.spec.host_network else sandbox.ips,
        mounted=mounted,
        static=state.static,
        target_id=_target(ctx, container),
    )
    return made, config


def _record(ctx: PodContext, start: Start, container: AnyContainer, container_id: str, sandbox_id: str) -> None:
    ctx.state.runtime = ctx.state.runtime.with_container(
        ContainerRecord(
            id=container_id,
            name=start.name,
            state=State.CREATED,
            restart_count=start.restart_count,
            sandbox_id=sandbox_id,
            hash=container_hash(container),
            created_at=ctx.deps.now(),
        )
    )


def _failed(ctx: PodContext, name: str, reason: str, message: str) -> bool:
    state = ctx.state
    found = find_container(state.pod, name)
    if found is not None:
        ctx.deps.metrics.started_container_errors.inc(_TYPES[found[1]], reason)
    state.waiting[name] = Waiting(reason, message)
    ctx.reporter.event(WARNING, "Failed", f"Error: {message}", name, grounds=state.step_back_off.failed(name))
    return False


def _sandbox_config(ctx: PodContext) -> PodSandboxConfig:
    """Return the configuration of the current sandbox, as containers are created with it."""
    state, sandbox = ctx.state, ctx.state.runtime.sandbox
    attempt = sandbox.attempt if sandbox else 0
    if state.sandbox_config is None or state.sandbox_config[0] != attempt:
        state.sandbox_config = (attempt, pod_setup.make_sandbox_config(ctx.deps, state.resize.allocated, attempt))
    return state.sandbox_config[1]


def _target(ctx: PodContext, container: AnyContainer) -> str:
    """Return the running container whose process namespace a debug container joins."""
    name = container.target_container_name if isinstance(container, core_v1.EphemeralContainer) else None
    record = ctx.state.runtime.latest(name) if name else None
    return record.id if record is not None and record.running else ""


async def _post_start(
    ctx: PodContext, container: AnyContainer, container_id: str, handler: core_v1.LifecycleHandler
) -> bool:
    """Run the postStart hook; a container whose hook fails is killed."""
    state, monotonic = ctx.state, ctx.deps.clock.monotonic
    assert isinstance(container, core_v1.Container)
    began = monotonic()
    try:
        await ctx.deps.hooks.run(state.pod, state.ip, container, container_id, handler)
    except HookError as error:
        grounds = f"after {duration.render(monotonic() - began)}: {error}"  # the status has the error too
        ctx.reporter.event(WARNING, "FailedPostStartHook", "PostStartHook failed", container.name, grounds=grounds)
        log.info("pod %s: postStart hook of %s: %s", state.uid, container.name, error)
        kill = Kill(container_id, container.name, "FailedPostStartHook")
        await stop_container(ctx, kill, grace_of(state.pod))
        state.waiting[container.name] = Waiting("PostStartHookError", f"PostStart handler: {error}")
        return False
    ctx.reporter.decided(f"postStart hook of container {container.name} ran {duration.render(monotonic() - began)}")
    return True
