"""Allocates the size of the spec to a pod, and saves it before anything acts on it (resource_state.py).

As upstream, a pod whose first size cannot be saved starts all the same, but a resize waits: its pod keeps the size that is on
disk, and the next agent has the same sizes for it and for the pods that were admitted in addition (allocation_manager.go).
"""

from __future__ import annotations

from agent.lifecycle.resize import PendingResize
from agent.pods import allocation
from agent.pods.allocation import Size
from agent.pods.context import PodContext
from agent.pods.resource_state import ALLOCATED
from agent.pods.state import ALLOCATION
from kube.api import core_v1


async def allocate(ctx: PodContext) -> None:
    """Allocate the size of the spec unless the node cannot resize the pod now; record events of the resize."""
    pod, size = ctx.state.pod, ctx.state.resize
    former, before = size.allocated, allocation.size_of(size.allocated)
    waits = allocation.differs(pod, former)
    size.pending = _pending(ctx, pod) if waits else None
    size.allocated = allocation.with_size(pod, before) if size.pending is not None else pod
    allocated = allocation.size_of(size.allocated)
    if allocated != before:
        await _save_resize(ctx, former, allocated)
    else:
        ctx.deps.resources.allocated.put(ctx.state.uid, allocated)
        await ctx.deps.resources.allocated.try_save(ctx.state.uid)
    runtime = ctx.state.runtime
    settled = all((found := runtime.latest(c.name)) and found.running for c in pod.spec.containers)
    ctx.reporter.resize_events.record(pod, differs=waits or ctx.state.resizing, pending=size.pending, settled=settled)


def _pending(ctx: PodContext, pod: core_v1.Pod) -> PendingResize | None:
    """Return why the pod cannot have its new size now: the node has no room, or it could not be saved a moment ago."""
    if (pending := ctx.pending_resize(pod)) is not None:
        return pending
    return ctx.state.resize.pending if ctx.state.step_back_off.waits(ALLOCATION) else None


async def _save_resize(ctx: PodContext, former: core_v1.Pod, allocated: Size) -> None:
    """Save another size; if that fails, the pod keeps its former one. Others are admitted in addition to both meanwhile."""
    state, saved = ctx.state, ctx.deps.resources.allocated
    resize = state.resize
    before, wanted = allocation.size_of(former), resize.allocated
    resize.former = former
    saved.put(state.uid, allocated)
    try:
        await saved.save(state.uid)
    except BaseException as error:
        saved.put(state.uid, before)
        resize.allocated = allocation.with_size(wanted, before)
        if not isinstance(error, OSError):
            raise
        resize.pending = PendingResize("Deferred", f"cannot write {ALLOCATED}: {error}")
        state.step_back_off.failed(ALLOCATION)
        return
    finally:
        resize.former = None
    state.step_back_off.succeeded(ALLOCATION)
    ctx.size_changed()
