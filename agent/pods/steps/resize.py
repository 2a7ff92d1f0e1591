"""Resizes running containers in place, and records the actuated resources of each (KEP-1287).

They are recorded in a file (resource_state.py), because older runtimes do not report them and the next agent must know what
still differs from the spec.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import msgspec

from agent.lifecycle import Resize, find_container, resize
from agent.pods import setup as pod_setup
from agent.pods.context import PodContext
from agent.podspec.security import AnyContainer
from cri.errors import CRIError
from kube.api import core_v1

log = logging.getLogger(__name__)

CHECKPOINT = "resources.json"
"""The file in the pod's directory in which earlier agents recorded them."""


async def actuate(ctx: PodContext, change: Resize) -> bool:
    """Resize a running container to its spec; True where it has that size now."""
    state, deps = ctx.state, ctx.deps
    found = find_container(state.pod, change.name)
    if found is None or state.back_off.waits(f"/resize/{change.name}"):
        return False
    pod, container = state.pod, found[0]
    try:
        await _check_use(ctx, container, change.id)
        # A parent must not be smaller than its child: the pod's cgroup first to grow, and last to shrink.
        await pod_setup.make_folders(deps, pod)
        resources = pod_setup.make_resources(deps, pod, container, static=state.static)
        await deps.runtime.client.runtime.update_container_resources(change.id, resources)
        await pod_setup.make_folders(deps, pod)
    except (CRIError, OSError, resize.ResizeError) as error:
        state.resize.error = str(error)
        log.warning("pod %s: resizing %s: %s", state.uid, change.name, error)
        state.back_off.failed(f"/resize/{change.name}")
        return False
    state.resize.error = ""
    state.back_off.retry_at.pop(f"/resize/{change.name}", None)
    await record_actuated(ctx, container, change.id)
    return True


async def _check_use(ctx: PodContext, container: AnyContainer, container_id: str) -> None:
    """Raise ResizeError where a container uses more memory than it is to have: the kernel would kill it."""
    actuated = (ctx.state.resize.actuated or {}).get(container_id)
    if isinstance(container, core_v1.Container) and resize.shrinks_memory(container, actuated):
        memory = (await ctx.deps.runtime.client.runtime.container_stats(container_id)).memory
        resize.check_use(container, actuated, memory.usage_bytes.value or memory.working_set_bytes.value)


async def record_actuated(ctx: PodContext, container: AnyContainer, container_id: str) -> None:
    """Record a container's actuated resources for the next agent; most have none and need no record."""
    state = ctx.state
    if state.resize.actuated is None or not isinstance(container, core_v1.Container):
        return
    alive = {record.id for record in state.runtime.alive}
    kept = {known: given for known, given in state.resize.actuated.items() if known in alive}
    given = container.resources or core_v1.ResourceRequirements()
    state.resize.actuated = {**kept, container_id: given}
    names = {record.id: record.name for record in state.runtime.containers}
    sizes = {names[known]: given for known, given in state.resize.actuated.items() if known in names}
    actuated = ctx.deps.resources.actuated
    actuated.put(state.uid, {**actuated.of(state.uid), **sizes}, state.resize.allocated.spec.resources)
    await actuated.save()


async def read_actuated(ctx: PodContext) -> dict[str, core_v1.ResourceRequirements]:
    """Return the resources that the last agent actuated, by ID of the running containers."""
    state = ctx.state
    if sizes := ctx.deps.resources.actuated.of(state.uid):
        return {record.id: sizes[record.name] for record in state.runtime.alive if record.name in sizes}
    if not state.runtime.containers:
        return {}
    return await asyncio.to_thread(_load, ctx.deps.volumes.pod_dir(state.uid))


def _load(folder: Path) -> dict[str, core_v1.ResourceRequirements]:
    try:
        return msgspec.json.decode((folder / CHECKPOINT).read_bytes(), type=dict[str, core_v1.ResourceRequirements])
    except (OSError, msgspec.DecodeError):
        return {}
