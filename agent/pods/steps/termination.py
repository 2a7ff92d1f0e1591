"""Terminates a pod: stops its containers within the grace period, removes sandbox, volumes and cgroup, deletes it in the API.

Sidecars outlive the main containers and are stopped in reverse order of their start, all within the one grace period. The pod
is deleted in the API only when its resources on the node are released, so that they are free for whatever replaces it; dead
containers and logs are removed after that, because nothing depends on them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from agent import threads
from agent.files import walk
from agent.lifecycle import Kill, find_container, grace_of, termination_waves
from agent.managers.errors import DynamicResourceError
from agent.pods.context import PodContext
from agent.pods.setup import unlink_logs
from agent.pods.steps.probes import probe_containers
from agent.pods.steps.record_updates import find_leftovers, reload_container
from agent.podspec.sandbox import log_directory
from agent.volumes.cleanup import CleanupError
from cri.errors import CRIError
from kube import duration
from kube.api import core_v1
from kube.events import NORMAL, WARNING

log = logging.getLogger(__name__)

MINIMUM_GRACE = 2
"""Seconds that a container gets after its preStop hook has used the whole grace period."""
RETRY_SECONDS = 1.0


def grace_seconds(ctx: PodContext) -> int:
    """Return the grace period of the pod's containers in seconds."""
    return grace_of(ctx.state.pod, ctx.state.termination.grace)


async def terminate_pod(ctx: PodContext, grace: int) -> None:
    """Stop all containers, release the pod's resources, report it, and delete the pod in the API if it is being deleted."""
    state, deps = ctx.state, ctx.deps
    if not state.termination.finished:
        probe_containers(ctx)  # those of a pod that an earlier agent began to stop have none yet
        deps.prober.end(state.uid)
        ctx.reporter.publish()
        await _stop_all(ctx, grace)
        deps.prober.stop(state.uid)
        await _release_resources(ctx)
        state.termination.finished = True
        state.waiting.clear()
        ctx.reporter.publish()
        deps.references.forget(state.uid)
    if not state.termination.torn_down:
        await _remove_volumes_and_cgroup(ctx)
        state.termination.torn_down = True
        ctx.resources_released()
    if state.deleted:
        if state.in_source and not state.static:
            await deps.writer.delete(state.pod)
        await remove_sandboxes(ctx)
        await remove_logs(ctx)
        deps.resources.forget(state.uid)
        state.termination.removed = True


async def _stop_all(ctx: PodContext, grace: int) -> None:
    """Stop the main containers, then sidecars, then the sandboxes; retry until the runtime has stopped them."""
    state, deps = ctx.state, ctx.deps
    deadline = deps.clock.monotonic() + grace
    while True:
        try:
            if state.runtime_uncertain:
                await find_leftovers(ctx)
            for wave in termination_waves(state.pod, state.runtime):
                left = max(round(deadline - deps.clock.monotonic()), min(grace, MINIMUM_GRACE))
                kills = [Kill(c.id, c.name, f"Stopping container {c.name}") for c in wave]
                await asyncio.gather(*(stop_container(ctx, kill, left) for kill in kills))
            await asyncio.gather(*(_stop_sandbox(ctx, s.id) for s in state.runtime.sandboxes))
            return
        except CRIError as error:
            metadata = state.pod.metadata
            log.warning("stopping pod %s/%s: %s", metadata.namespace, metadata.name, error)
            await deps.clock.sleep(RETRY_SECONDS)


async def _release_resources(ctx: PodContext) -> None:
    """Release CPUs, memory, devices and claims; wait for a claim's driver if it is unavailable, as upstream does."""
    delay = RETRY_SECONDS
    while True:
        try:
            await ctx.deps.managers.release(ctx.state.pod)
            return
        except DynamicResourceError as error:
            metadata = ctx.state.pod.metadata
            log.warning("pod %s/%s: %s", metadata.namespace, metadata.name, error)
        await ctx.deps.clock.sleep(delay)
        delay = min(delay * 2, 60.0)


async def _stop_sandbox(ctx: PodContext, sandbox_id: str) -> None:
    state = ctx.state
    await ctx.deps.runtime.stop_sandbox(sandbox_id, state.pod.metadata.namespace or "")
    record = next((s for s in state.runtime.sandboxes if s.id == sandbox_id), None)
    if record is not None:
        # The call's return says as much as another read would.
        state.runtime = state.runtime.with_sandbox(replace(record, ready=False))


async def stop_container(ctx: PodContext, kill: Kill, grace: int, *, hook: bool = True) -> None:
    """Run the preStop hook, stop the container within the grace period, read its exit status. Raise CRIError."""
    deps = ctx.deps
    message = kill.message or f"Stopping container {kill.name}"
    ctx.reporter.event(NORMAL, "Killing", message, kill.name, grounds=f"grace period of {grace} s")
    found = find_container(ctx.state.pod, kill.name)
    container = found[0] if found else None
    left = grace
    if hook and grace > 0 and isinstance(container, core_v1.Container):
        handler = container.lifecycle.pre_stop if container.lifecycle else None
        if handler is not None:
            began = deps.clock.monotonic()
            await _pre_stop(ctx, container, kill.id, handler, grace)
            left = max(round(grace - (deps.clock.monotonic() - began)), min(grace, MINIMUM_GRACE))
    await deps.runtime.stop(kill.id, left)
    await reload_container(ctx, kill.id)


async def _pre_stop(
    ctx: PodContext,
    container: core_v1.Container,
    container_id: str,
    handler: core_v1.LifecycleHandler,
    grace: int,
) -> None:
    state, monotonic = ctx.state, ctx.deps.clock.monotonic
    began = monotonic()
    try:
        async with asyncio.timeout(grace):
            await ctx.deps.hooks.run(state.pod, state.ip, container, container_id, handler)
        ctx.reporter.decided(f"preStop hook of container {container.name} ran {duration.render(monotonic() - began)}")
    except TimeoutError:
        ctx.reporter.decided(f"preStop hook of container {container.name} did not end in the grace period of {grace} s")
        log.info("pod %s: preStop hook of %s did not end in %d s", state.uid, container.name, grace)
    except Exception as error:  # nothing but cancellation comes between a hook and the end of its container
        # The error has the hook's output, which only the node's administrators may read.
        grounds = f"after {duration.render(monotonic() - began)}, its output is in the log of the agent"
        ctx.reporter.event(WARNING, "FailedPreStopHook", "PreStopHook failed", container.name, grounds=grounds)
        log.info("pod %s: preStop hook of %s: %s", state.uid, container.name, error)


async def _remove_volumes_and_cgroup(ctx: PodContext) -> None:
    """Unmount volumes and remove the cgroup; retry while they are busy."""
    state, deps = ctx.state, ctx.deps
    delay = 0.05
    while True:
        try:
            await deps.volumes.clean(state.uid, threads.Owner.of(state.pod))
            break
        except (CleanupError, OSError) as error:
            log.warning("pod %s: cleaning volumes: %s", state.uid, error)
            await deps.clock.sleep(delay)
            delay = min(delay * 2, 60.0)
    if deps.config.cgroups_per_qos:
        for pause in (0.01, 0.02, 0.05, 0.1, 0.5, 1.0):
            if await deps.cgroups.remove(deps.cgroups.pod_path(state.pod)):
                break
            await deps.clock.sleep(pause)


async def remove_sandbox(ctx: PodContext, sandbox_id: str) -> None:
    """Remove a dead sandbox with its containers; if it cannot be removed now, the next relist finds it again."""
    state = ctx.state
    try:
        await ctx.deps.runtime.remove_sandbox(sandbox_id, state.pod.metadata.namespace or "")
    except CRIError as error:
        log.warning("pod %s: removing sandbox %s: %s", state.uid, sandbox_id[:13], error)
        return
    state.runtime = state.runtime.without_sandbox(sandbox_id)


async def remove_sandboxes(ctx: PodContext) -> None:
    """Remove the pod's dead sandboxes and containers."""
    ids = {record.id for record in ctx.state.runtime.containers}
    for sandbox in ctx.state.runtime.sandboxes:
        await remove_sandbox(ctx, sandbox.id)
    await asyncio.to_thread(unlink_logs, ctx.deps.config.container_logs_dir, ids)


async def remove_logs(ctx: PodContext) -> None:
    """Remove the pod's logs; if that fails, housekeeping tries again when the pod is gone."""
    try:
        await asyncio.to_thread(walk.remove, log_directory(ctx.deps.config.pod_logs_dir, ctx.state.pod))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("pod %s: removing its logs: %s", ctx.state.uid, error)
