"""Resizes a pod and its running containers in place, and records the actuated sizes (KEP-1287, KEP-5419).

A parent cgroup must not be smaller than its children: the pod's cgroup first gets the larger of its current and its new limits,
then come the containers, then the pod gets its new limits. The sizes are recorded in a file (resource_state.py) after the last
step: an agent that ends in between finds a difference and repeats all steps. That of a new container is recorded before it
is created, as with upstream. Older runtimes do not report sizes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from agent.files.decoding import DamagedFileError, decode_json
from agent.lifecycle import Resize, find_container, resize
from agent.lifecycle.resize import Actuated, inherited
from agent.pods import setup as pod_setup
from agent.pods.allocation import Size
from agent.pods.context import PodContext
from agent.pods.state import RESIZE
from agent.podspec.sandbox import pod_resources
from agent.podspec.security import AnyContainer
from cri.errors import CRIError, UnimplementedError
from cri.messages import LinuxContainerResources
from kube.api import core_v1

log = logging.getLogger(__name__)

CHECKPOINT = "resources.json"
"""The file in the pod's directory in which earlier agents recorded them."""
_UNIMPLEMENTED = "not implemented"
"""Containerd 2.2 answers UpdatePodSandboxResources with it, and the code UNKNOWN."""


async def actuate(ctx: PodContext, changes: Sequence[Resize]) -> bool:
    """Resize running containers and the pod's cgroup to the allocated size; True if they have it now."""
    state = ctx.state
    actuated = state.resize.actuated
    if actuated is None or not (changes or _pod_waits(ctx, actuated)) or state.step_back_off.waits(RESIZE):
        return False
    try:
        await _check_use(ctx, changes, actuated)
        await _grow_pod(ctx)
        for change in changes:
            await _resize_container(ctx, change)
        await _settle_pod(ctx)
    except (CRIError, OSError, resize.ResizeError) as error:
        _failed(ctx, str(error))
        return False
    state.resize.error = ""
    state.step_back_off.succeeded(RESIZE)
    await _save(ctx)
    return True


def _pod_waits(ctx: PodContext, actuated: Actuated) -> bool:
    """Return whether the pod's own cgroup or its record is not that of its allocated size."""
    state = ctx.state
    differs = resize.pod_differs(state.resize.allocated, state.runtime, actuated.together)
    return differs or state.resize.pod_unsettled


def _failed(ctx: PodContext, error: str) -> None:
    state = ctx.state
    log.warning("pod %s: resize: %s", state.uid, error)
    state.resize.error = error
    state.step_back_off.failed(RESIZE)
    ctx.reporter.resize_events.failed(state.resize.allocated, error)


async def _check_use(ctx: PodContext, changes: Sequence[Resize], actuated: Actuated) -> None:
    """Raise ResizeError for a memory limit that is not above what is used, before anything is changed."""
    deps, pod = ctx.deps, ctx.state.resize.allocated
    limits: dict[str, tuple[int, int]] = {}
    if deps.config.cgroups_per_qos:
        wanted, path = pod_setup.pod_limits(deps, pod).memory, deps.cgroups.pod_path(pod)
        current = (await asyncio.to_thread(deps.cgroups.fs.read, path)).memory
        if wanted and (not current or wanted < current):
            limits["pod"] = wanted, await asyncio.to_thread(deps.cgroups.fs.memory_used, path)
    for change in changes:
        found = find_container(pod, change.name)
        size = inherited(found[0].resources if found else None, pod.spec.resources)
        if resize.shrinks_memory(size, actuated.containers.get(change.id)):
            memory = (await deps.runtime.client.runtime.container_stats(change.id)).memory
            used = memory.usage_bytes.value or memory.working_set_bytes.value
            limits[f'container "{change.name}"'] = resize.memory_limit(size), used
    resize.check_use(limits)


async def _grow_pod(ctx: PodContext) -> None:
    """Give the pod's cgroup room for its allocated size, without taking any. Raise CRIError, OSError."""
    deps, pod = ctx.deps, ctx.state.resize.allocated
    ctx.state.resize.pod_unsettled = True
    if deps.config.cgroups_per_qos:
        await _notify_runtime(ctx)
        wanted, path = pod_setup.pod_limits(deps, pod), deps.cgroups.pod_path(pod)
        current = await asyncio.to_thread(deps.cgroups.fs.read, path)
        await deps.cgroups.apply(path, wanted.covering(current), strict=True)


async def _notify_runtime(ctx: PodContext) -> None:
    """Tell the runtime the pod's new resources before its cgroup changes: a plugin of it may refuse them. Raise CRIError."""
    deps, state = ctx.deps, ctx.state
    config, pod = deps.config, state.resize.allocated
    if state.runtime.sandbox is None:
        return
    resources = pod_resources(pod, cfs_quota=config.cpu_cfs_quota, period_us=int(config.cpu_cfs_period * 1e6))
    try:
        await deps.runtime.client.runtime.update_pod_sandbox_resources(
            state.runtime.sandbox.id, overhead=LinuxContainerResources(), resources=resources
        )
    except CRIError as error:
        if not isinstance(error, UnimplementedError) and _UNIMPLEMENTED not in error.message:
            raise


async def _resize_container(ctx: PodContext, change: Resize) -> None:
    state, deps = ctx.state, ctx.deps
    pod = state.resize.allocated
    found = find_container(pod, change.name)
    if found is not None:
        resources = pod_setup.make_resources(deps, pod, found[0], static=state.static)
        await deps.runtime.client.runtime.update_container_resources(change.id, resources)
        set_actuated(ctx, found[0], change.id)


async def _settle_pod(ctx: PodContext) -> None:
    """Give the pod's cgroup the limits of its allocated size; its containers have theirs. Raise OSError."""
    deps, size, pod = ctx.deps, ctx.state.resize, ctx.state.resize.allocated
    if deps.config.cgroups_per_qos:
        await deps.cgroups.apply(deps.cgroups.pod_path(pod), pod_setup.pod_limits(deps, pod), strict=True)
    _set_pod_actuated(ctx)
    size.pod_unsettled = False


def _set_pod_actuated(ctx: PodContext) -> None:
    """Take the pod's allocated resources for those of its cgroup."""
    size = ctx.state.resize
    if size.actuated is not None:
        size.actuated = replace(size.actuated, together=size.allocated.spec.resources)


async def record_pod_actuated(ctx: PodContext) -> None:
    """Record the size of a pod whose cgroup was made."""
    _set_pod_actuated(ctx)
    if ctx.state.resize.allocated.spec.resources is not None:
        await _save(ctx)


async def record_size(ctx: PodContext, container: AnyContainer) -> None:
    """Record the size of a container that is about to be created; in a resize the others' are recorded when it is complete.

    Recorded afterwards, it would be unknown to an agent that is started in between, which could not resize the container.
    """
    size = ctx.state.resize
    if size.actuated is None or not isinstance(container, core_v1.Container):
        return
    given = inherited(container.resources, size.allocated.spec.resources)
    known = _known(ctx)
    together = known.together if size.pod_unsettled else size.actuated.together
    await _put(ctx, Size({**known.containers, container.name: given}, together))


def set_actuated(ctx: PodContext, container: AnyContainer, container_id: str) -> None:
    """Take a container's allocated size for the one that it has."""
    state = ctx.state
    if state.resize.actuated is None or not isinstance(container, core_v1.Container):
        return
    alive = {record.id for record in state.runtime.alive}
    kept = {known: given for known, given in state.resize.actuated.containers.items() if known in alive}
    given = inherited(container.resources, state.resize.allocated.spec.resources)
    state.resize.actuated = replace(state.resize.actuated, containers={**kept, container_id: given})


async def _save(ctx: PodContext) -> None:
    """Record the actuated sizes for the next agent; most pods have none and need no record."""
    state, actuated = ctx.state, ctx.state.resize.actuated
    if actuated is None:
        return
    names = {record.id: record.name for record in state.runtime.containers}
    sizes = {names[c]: given for c, given in actuated.containers.items() if c in names}
    await _put(ctx, Size({**_known(ctx).containers, **sizes}, actuated.together))


def _known(ctx: PodContext) -> Size:
    return ctx.deps.resources.actuated.of(ctx.state.uid) or Size({})


async def _put(ctx: PodContext, size: Size) -> None:
    states = ctx.deps.resources.actuated
    states.put(ctx.state.uid, size)
    await states.try_save(ctx.state.uid)


async def read_actuated(ctx: PodContext) -> Actuated:
    """Return the sizes that the last agent actuated."""
    state = ctx.state
    if (size := ctx.deps.resources.actuated.of(state.uid)) is not None:
        containers = {
            record.id: inherited(size.containers[record.name], size.together)
            for record in state.runtime.alive
            if record.name in size.containers
        }
        return Actuated(containers, size.together)
    if not state.runtime.containers:
        return Actuated({})
    return Actuated(await asyncio.to_thread(_load, ctx.deps.volumes.pod_dir(state.uid)))


def _load(folder: Path) -> dict[str, core_v1.ResourceRequirements]:
    try:
        return decode_json(folder / CHECKPOINT, dict[str, core_v1.ResourceRequirements])
    except (OSError, DamagedFileError):
        return {}
