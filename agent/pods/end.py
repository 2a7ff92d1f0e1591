"""A pod's end: containers stopped in order within the grace period, sandbox, volumes and cgroup taken down, the API told.

Sidecars outlive the main containers and end in reverse order of their start, all within the one grace period. The pod
leaves the API only when its resources on the node are free again, so that whoever takes its place finds them free; the
dead containers and logs are swept after that, because nobody waits for them.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from agent.lifecycle import Kill, find_container, grace_of, termination_waves
from agent.managers.errors import DynamicResourceError
from agent.pods.setup import unlink_logs
from agent.pods.termination_messages import with_message
from agent.podspec.sandbox import log_directory
from agent.threads import Owner
from agent.volumes import walk
from agent.volumes.cleanup import CleanupError
from cri.errors import CRIError
from kube.api import core_v1
from kube.events import NORMAL, WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

log = logging.getLogger(__name__)

MINIMUM_GRACE = 2
"""Seconds that a container has after its preStop hook used the grace up."""
RETRY_SECONDS = 1.0


def grace_seconds(worker: PodWorker) -> int:
    """Return how many seconds the pod's containers have to end by themselves."""
    return grace_of(worker.pod, worker.grace)


async def end_pod(worker: PodWorker, grace: int) -> None:
    """Stop everything, free what the pod held, tell the API, and take the pod out of it where it is being deleted."""
    tools = worker.tools
    if not worker.finished:
        worker.final_outcomes = worker.outcomes()
        tools.prober.stop(worker.uid)
        worker.publish()
        await _stop_all(worker, grace)
        await _release(worker)
        worker.finished = True
        worker.final_outcomes = {}
        worker.waiting.clear()
        worker.publish()
        tools.references.forget(worker.uid)
        await _free(worker)
        worker.freed()
    if worker.leaving:
        if worker.in_api and not worker.static:
            await tools.writer.delete(worker.pod)
        await discard(worker)
        worker.discarded = True


async def _stop_all(worker: PodWorker, grace: int) -> None:
    """Stop containers wave by wave, then the sandboxes; tries until the runtime has done it."""
    tools = worker.tools
    deadline = tools.clock.monotonic() + grace
    while True:
        try:
            if worker.suspect:
                await look_for_leftovers(worker)
            for wave in termination_waves(worker.pod, worker.runtime):
                left = max(round(deadline - tools.clock.monotonic()), min(grace, MINIMUM_GRACE))
                kills = [Kill(c.id, c.name, f"Stopping container {c.name}") for c in wave]
                await asyncio.gather(*(stop_container(worker, kill, left) for kill in kills))
            await asyncio.gather(*(_stop_sandbox(worker, s.id) for s in worker.runtime.sandboxes))
            return
        except CRIError as error:
            metadata = worker.pod.metadata
            log.warning("stopping pod %s/%s: %s", metadata.namespace, metadata.name, error)
            await tools.clock.sleep(RETRY_SECONDS)


async def look_for_leftovers(worker: PodWorker) -> None:
    """Find what a call may have made after all whose end was not heard. Raise CRIError."""
    found = await worker.tools.runtime.of_pod(worker.uid)
    known = {sandbox.id for sandbox in worker.runtime.sandboxes}
    for sandbox in found.sandboxes:
        if sandbox.id not in known:
            worker.runtime = worker.runtime.with_sandbox(sandbox)
    pod_dir, owner = worker.tools.volumes.pod_dir(worker.uid), Owner.of(worker.pod)
    for container in found.containers:
        worker.runtime = worker.runtime.with_container(await with_message(container, pod_dir, owner))
    worker.suspect = False


async def _release(worker: PodWorker) -> None:
    """Give back processors, memory, devices and claims; a claim's driver that is away is waited for, as upstream does."""
    delay = RETRY_SECONDS
    while True:
        try:
            await worker.tools.managers.release(worker.pod)
            return
        except DynamicResourceError as error:
            metadata = worker.pod.metadata
            log.warning("pod %s/%s: %s", metadata.namespace, metadata.name, error)
        await worker.tools.clock.sleep(delay)
        delay = min(delay * 2, 60.0)


async def _stop_sandbox(worker: PodWorker, sandbox_id: str) -> None:
    await worker.tools.runtime.stop_sandbox(sandbox_id)
    record = next((s for s in worker.runtime.sandboxes if s.id == sandbox_id), None)
    if record is not None:
        # The call's return says as much as another look would.
        worker.runtime = worker.runtime.with_sandbox(replace(record, ready=False))


async def stop_container(worker: PodWorker, kill: Kill, grace: int, hook: bool = True) -> None:
    """Run the preStop hook, stop the container within the grace period, keep the record of its end. Raise CRIError."""
    tools = worker.tools
    worker.event(NORMAL, "Killing", kill.message or f"Stopping container {kill.name}", kill.name)
    found = find_container(worker.pod, kill.name)
    container = found[0] if found else None
    left = grace
    if hook and grace > 0 and isinstance(container, core_v1.Container):
        handler = container.lifecycle.pre_stop if container.lifecycle else None
        if handler is not None:
            began = tools.clock.monotonic()
            await _pre_stop(worker, container, kill.id, handler, grace)
            left = max(round(grace - (tools.clock.monotonic() - began)), min(grace, MINIMUM_GRACE))
    await tools.runtime.stop(kill.id, left)
    await worker.reload(kill.id)


async def _pre_stop(
    worker: PodWorker,
    container: core_v1.Container,
    container_id: str,
    handler: core_v1.LifecycleHandler,
    grace: int,
) -> None:
    sandbox = worker.runtime.sandbox
    ip = sandbox.ips[0] if sandbox and sandbox.ips else ""
    try:
        async with asyncio.timeout(grace):
            await worker.tools.hooks.run(worker.pod, ip, container, container_id, handler)
    except TimeoutError:
        log.info("pod %s: preStop hook of %s did not end in %d s", worker.uid, container.name, grace)
    except Exception as error:  # nothing but cancellation comes between a hook and the end of its container
        worker.event(WARNING, "FailedPreStopHook", "PreStopHook failed", container.name)
        log.info("pod %s: preStop hook of %s: %s", worker.uid, container.name, error)


async def _free(worker: PodWorker) -> None:
    """Take down volumes and cgroup; what is busy is tried again until it is not."""
    tools = worker.tools
    delay = 0.05
    while True:
        try:
            await tools.volumes.clean(worker.uid)
            break
        except (CleanupError, OSError) as error:
            log.warning("pod %s: cleaning volumes: %s", worker.uid, error)
            await tools.clock.sleep(delay)
            delay = min(delay * 2, 60.0)
    if tools.config.cgroups_per_qos:
        for pause in (0.01, 0.02, 0.05, 0.1, 0.5, 1.0):
            if await tools.cgroups.take_away(tools.cgroups.pod_path(worker.pod)):
                break
            await tools.clock.sleep(pause)


async def remove_sandbox(worker: PodWorker, sandbox_id: str) -> None:
    """Remove a dead sandbox with its containers; one that cannot be removed now is found again by the slow listing."""
    try:
        await worker.tools.runtime.remove_sandbox(sandbox_id)
    except CRIError as error:
        log.warning("pod %s: removing sandbox %s: %s", worker.uid, sandbox_id[:13], error)
        return
    worker.runtime = worker.runtime.without_sandbox(sandbox_id)


async def discard(worker: PodWorker) -> None:
    """Remove the pod's dead sandboxes, containers and logs."""
    tools = worker.tools
    ids = {record.id for record in worker.runtime.containers}
    for sandbox in worker.runtime.sandboxes:
        await remove_sandbox(worker, sandbox.id)

    def sweep() -> None:
        unlink_logs(tools.config.container_logs_dir, ids)
        try:
            walk.remove(log_directory(tools.config.pod_logs_dir, worker.pod))
        except FileNotFoundError:
            pass
        except OSError as error:
            log.warning("pod %s: removing its logs: %s", worker.uid, error)  # housekeeping tries again

    await asyncio.to_thread(sweep)
    tools.resources.forget(worker.uid)
