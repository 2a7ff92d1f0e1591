"""The runtime's records of a pod, read again after events, calls and listings.

The runtime sends an exit event before its own status shows the exit. So a container with an exit event is read until it
is, at growing intervals; where it still runs after two seconds, the event was about something else, or the relist will find it.
containerd learns that a container was killed for its memory by an event of its own, which may come after the exit: it is read
a few times more for its reason, before a status with "Error" ends the pod.
Two reads of a container may cross on their way, so an exit that was seen once is never taken back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path

from agent.node import log_rotation
from agent.pods.context import PodContext
from agent.pods.setup import unlink_logs
from agent.pods.termination_messages import is_on_volume, with_message, with_own_message
from agent.runtime_records import ContainerRecord, PodRuntime
from agent.threads import Owner
from cri.errors import CRIError
from kube.api import core_v1

log = logging.getLogger(__name__)

EXIT_LAG = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Seconds between reads."""
REASON_LAG = (0.02, 0.05, 0.1)
"""Seconds before further reads of a container that may have been killed for its memory."""
_KILLED = 137


async def reload_container(ctx: PodContext, container_id: str) -> ContainerRecord | None:
    """Read a container and keep its record; None if it is gone. Raise CRIError."""
    state = ctx.state
    before, sandbox = state.runtime.find(container_id), state.runtime.sandbox
    sandbox_id = before.sandbox_id if before else (sandbox.id if sandbox else "")
    record = await ctx.deps.runtime.container(container_id, sandbox_id)
    if record is None:
        state.runtime = state.runtime.without_container(container_id)
        return None
    before = state.runtime.find(container_id)
    if before is not None and before.exited and not record.exited:
        return before  # two reads crossed: the later one knows better
    record = await with_message(record, ctx.deps.volumes.pod_dir(state.uid), Owner.of(state.pod))
    if before is not None and state.runtime.find(container_id) is None:
        return None  # removed meanwhile
    state.runtime = state.runtime.with_container(record)
    return record


async def remove_container(ctx: PodContext, container_id: str) -> None:
    """Remove a dead container instance from the runtime, with its logs."""
    state = ctx.state
    try:
        await ctx.deps.runtime.remove(container_id)
    except CRIError as error:
        log.warning("pod %s: removing %s: %s", state.uid, container_id[:13], error)
        return
    record = state.runtime.find(container_id)
    state.runtime = state.runtime.without_container(container_id)
    await asyncio.to_thread(unlink_logs, ctx.deps.config.container_logs_dir, {container_id})
    if record is not None and record.log_path:
        await asyncio.to_thread(log_rotation.remove_logs, Path(record.log_path))


async def read_exits(ctx: PodContext, ids: Iterable[str]) -> None:
    """Read the containers and sandboxes of these IDs, for which there were exit events."""
    for container_id in ids:
        try:
            if any(sandbox.id == container_id for sandbox in ctx.state.runtime.sandboxes):
                await _read_sandbox(ctx, container_id)
            else:
                await _read_container(ctx, container_id)
        except CRIError as error:
            log.warning("pod %s: reading %s: %s", ctx.state.uid, container_id[:13], error)


async def _read_sandbox(ctx: PodContext, sandbox_id: str) -> None:
    for lag in EXIT_LAG:
        sandbox = await ctx.deps.runtime.sandbox(sandbox_id)
        if sandbox is None:
            ctx.state.runtime = ctx.state.runtime.without_sandbox(sandbox_id)
            return
        if not sandbox.ready:
            ctx.state.runtime = ctx.state.runtime.with_sandbox(sandbox)
            return
        await ctx.deps.clock.sleep(lag)


async def _read_container(ctx: PodContext, container_id: str) -> None:
    for lag in EXIT_LAG:
        record = await reload_container(ctx, container_id)
        if record is None:
            return
        if record.exited:
            await _read_reason(ctx, record)
            return
        await ctx.deps.clock.sleep(lag)


async def _read_reason(ctx: PodContext, record: ContainerRecord) -> None:
    """Read a container again that was killed, perhaps for its memory, until the runtime knows the reason."""
    for lag in REASON_LAG if _has_memory_limit(ctx.state.pod, record.name) else ():
        if record.exit_code != _KILLED or record.reason != "Error":
            return
        await ctx.deps.clock.sleep(lag)
        found = await reload_container(ctx, record.id)
        if found is None:
            return
        record = found


def _has_memory_limit(pod: core_v1.Pod, name: str) -> bool:
    spec = pod.spec
    found = [each.resources for each in (*spec.init_containers, *spec.containers) if each.name == name]
    return any(each is not None and "memory" in each.limits for each in (spec.resources, *found))


def replace_records(ctx: PodContext, listed: PodRuntime) -> set[str]:
    """Take over a listing of the runtime; return the IDs of containers that have to be read for their messages."""
    state, pod_dir = ctx.state, ctx.deps.volumes.pod_dir(ctx.state.uid)
    unread, containers = set(), []
    for record in listed.containers:
        before = state.runtime.find(record.id)
        if before is not None and before.state is record.state:
            record = before  # with the message that was read before
        elif is_on_volume(record, pod_dir):
            unread.add(record.id)  # reading it may take its time
            state.runtime_uncertain |= state.terminating
        else:
            record = with_own_message(record)
        containers.append(record)
    state.runtime = PodRuntime.of(listed.sandboxes, containers)
    return unread


async def find_leftovers(ctx: PodContext) -> None:
    """Find what an interrupted call may have created all the same. Raise CRIError."""
    state = ctx.state
    found = await ctx.deps.runtime.of_pod(state.uid)
    known = {sandbox.id for sandbox in state.runtime.sandboxes}
    for sandbox in found.sandboxes:
        if sandbox.id not in known:
            state.runtime = state.runtime.with_sandbox(sandbox)
    pod_dir, owner = ctx.deps.volumes.pod_dir(state.uid), Owner.of(state.pod)
    read = [await with_message(container, pod_dir, owner) for container in found.containers]
    containers = {record.id: record for record in (*state.runtime.containers, *read)}
    state.runtime = PodRuntime.of(state.runtime.sandboxes, containers.values())
    state.runtime_uncertain = False
