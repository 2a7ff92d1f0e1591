"""Actuated resources: what each running container was given, and giving it another size while it runs (KEP-1287).

What a container was last given is remembered in a file (resource_state.py), because older runtimes do not tell it and the
next agent must know what still differs from the spec.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agent.lifecycle import Resize, find_container
from agent.pods import resize
from agent.pods import setup as pod_setup
from agent.podspec.security import AnyContainer
from cri.errors import CRIError
from kube.api import core_v1

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

log = logging.getLogger(__name__)

CHECKPOINT = "resources.json"
"""Where agents before had it, in the pod's folder."""


async def actuate(worker: PodWorker, change: Resize) -> bool:
    """Give a running container the resources of its spec; True where it has them now."""
    found = find_container(worker.pod, change.name)
    if found is None or worker.retry_at.get(f"/resize/{change.name}", 0.0) > worker.tools.monotonic():
        return False
    tools, pod, container = worker.tools, worker.pod, found[0]
    try:
        await _check_use(worker, container, change.id)
        # A parent must not be smaller than its child: the pod's cgroup first to grow, and last to shrink.
        await pod_setup.make_folders(tools, pod)
        resources = pod_setup.make_resources(tools, pod, container, static=worker.static)
        await tools.runtime.client.runtime.update_container_resources(change.id, resources)
        await pod_setup.make_folders(tools, pod)
    except (CRIError, OSError, resize.ResizeError) as error:
        worker.resize_error = str(error)
        log.warning("pod %s: resizing %s: %s", worker.uid, change.name, error)
        worker.retry_later(f"/resize/{change.name}")
        return False
    worker.resize_error = ""
    worker.retry_at.pop(f"/resize/{change.name}", None)
    await note(worker, container, change.id)
    return True


async def _check_use(worker: PodWorker, container: AnyContainer, container_id: str) -> None:
    """Raise ResizeError where a container uses more memory than it is to have: the kernel would kill it."""
    applied = (worker.applied or {}).get(container_id)
    if isinstance(container, core_v1.Container) and resize.shrinks_memory(container, applied):
        memory = (await worker.tools.runtime.client.runtime.container_stats(container_id)).memory
        resize.check_use(container, applied, memory.usage_bytes.value or memory.working_set_bytes.value)


async def note(worker: PodWorker, container: AnyContainer, container_id: str) -> None:
    """Remember what a container was given, for the next agent; most have no size and need no note."""
    if worker.applied is None or not isinstance(container, core_v1.Container):
        return
    alive = {record.id for record in worker.runtime.alive}
    kept = {known: given for known, given in worker.applied.items() if known in alive}
    given = container.resources or core_v1.ResourceRequirements()
    worker.applied = {**kept, container_id: given}
    names = {record.id: record.name for record in worker.runtime.containers}
    sizes = {names[known]: given for known, given in worker.applied.items() if known in names}
    actuated = worker.tools.resources.actuated
    actuated.put(worker.uid, {**actuated.of(worker.uid), **sizes}, worker.allocated.spec.resources)
    await actuated.save()


async def noted(worker: PodWorker) -> dict[str, core_v1.ResourceRequirements]:
    """Return what the last agent gave the running containers, by container ID."""
    if sizes := worker.tools.resources.actuated.of(worker.uid):
        return {record.id: sizes[record.name] for record in worker.runtime.alive if record.name in sizes}
    if not worker.runtime.containers:
        return {}
    return await asyncio.to_thread(_load, worker.tools.volumes.pod_dir(worker.uid))


def _load(folder: Path) -> dict[str, core_v1.ResourceRequirements]:
    try:
        return msgspec.json.decode((folder / CHECKPOINT).read_bytes(), type=dict[str, core_v1.ResourceRequirements])
    except (OSError, msgspec.DecodeError):
        return {}
