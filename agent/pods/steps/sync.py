"""Syncs a pod: plans (lifecycle.plan), executes the plan, and plans again until there is no action left.

The sync then schedules the next one for the time of the next possible action. Intermediate states are reported in the pod's
status only if they last: the first plan's status reports that the agent has the pod (kubectl: ContainerCreating).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Collection
from functools import partial

from msgspec.structs import replace

from agent.lifecycle import End, Kill, Kind, Plan, Situation, grace_of, plan, removal_order
from agent.pods import crash_loop
from agent.pods.context import PodContext, reject
from agent.pods.steps.allocate import allocate
from agent.pods.steps.containers import start_container
from agent.pods.steps.probes import probe_containers
from agent.pods.steps.record_updates import find_leftovers, remove_container
from agent.pods.steps.resize import actuate, read_actuated
from agent.pods.steps.sandbox import create_sandbox, stop_sandboxes
from agent.pods.steps.termination import remove_sandbox, stop_container
from agent.pods.steps.volumes import set_up_volumes
from agent.runtime_records import ContainerRecord
from agent.status.phase import ENDED_PHASES
from agent.status.pod import summed_phase
from kube import duration
from kube.events import NORMAL, WARNING

_REPORT_SECONDS = 2.0
"""Seconds to wait until the API has the last status of containers that are about to be removed."""


async def sync(ctx: PodContext) -> None:
    """Plan and execute until there is nothing more to do. Raise CRIError."""
    state, deps = ctx.state, ctx.deps
    if state.resize.actuated is None:
        state.resize.actuated = await read_actuated(ctx)
    if not state.resources_assigned and not await _assign_resources(ctx):
        return
    if state.runtime_uncertain:
        await find_leftovers(ctx)
    rounds = 0
    while True:
        ctx.wakeup.sync_requested = False
        probe_containers(ctx)
        await allocate(ctx)
        now, monotonic = deps.now(), deps.monotonic()
        decided = plan(_situation(ctx, now, monotonic))
        _report_back_off(ctx, decided.backing_off)
        if decided.end is not None:
            state.termination.cause = decided.end
            if decided.end.reason:
                ctx.reporter.event(NORMAL, decided.end.reason, decided.end.message)
            ctx.wakeup.request_sync()
            return
        if rounds == 0:
            ctx.reporter.publish()
            if _has_ended(ctx):
                # The runtime lost what may not run again: nothing is started, what is left is stopped.
                state.termination.cause = End()
                ctx.wakeup.request_sync()
                return
        else:
            ctx.reporter.publish_late()
        rounds += 1
        generation = state.volumes.config_generation
        progressed = await _execute(ctx, decided)
        if generation != state.volumes.config_generation:
            # What failed meanwhile may have read the objects before their change: it does not wait for its back-off.
            state.volumes.refresh_at = 0.0
            state.step_back_off.retry_at.clear()
        for container_id in decided.remove:
            await remove_container(ctx, container_id)
        for sandbox_id in decided.remove_sandboxes:
            await remove_sandbox(ctx, sandbox_id)
        if not progressed and not ctx.wakeup.sync_requested:
            ctx.reporter.publish()
            ctx.wakeup.request_sync_at(monotonic + decided.wake_at - now if decided.wake_at is not None else None)
            # An earlier retry was considered, and waits for something else (a longer back-off).
            ctx.wakeup.request_sync_at(
                min((at for at in state.step_back_off.retry_at.values() if at > monotonic), default=None)
            )
            ctx.wakeup.request_sync_at(state.volumes.refresh_at)
            return


def _has_ended(ctx: PodContext) -> bool:
    """Return whether the pod has ended by its last status, or by what its containers' statuses make together."""
    status = ctx.reporter.last_status
    return status is not None and (
        status.phase in ENDED_PHASES or summed_phase(ctx.reporter.basis(), status, ctx.state.runtime) in ENDED_PHASES
    )


def _situation(ctx: PodContext, now: float, monotonic: float) -> Situation:
    state = ctx.state
    # Not the spec as it is now: it may have changed while the allocated size was saved.
    pod = replace(ctx.reporter.basis(), spec=state.resize.allocated.spec)
    return Situation(
        pod=pod,
        runtime=state.runtime,
        now=now,
        outcomes=ctx.reporter.outcomes(),
        restart_at=partial(state.crash_loop.restart_at, state.pod),
        retry_at={name: now + at - monotonic for name, at in state.step_back_off.retry_at.items()},
        actuated=state.resize.actuated.containers if state.resize.actuated is not None else {},
    )


async def _assign_resources(ctx: PodContext) -> bool:
    """Assign processors, memory and devices to the pod; False if it is rejected for want of them."""
    state = ctx.state
    running = {record.name for record in state.runtime.alive}
    refused = await ctx.deps.managers.admit(state.resize.allocated, running)
    if refused is None:
        state.resources_assigned = True
        return True
    reject(ctx, refused)
    return False


def _report_back_off(ctx: PodContext, backing_off: Collection[str]) -> None:
    """Show in the status which containers are in CrashLoopBackOff; record an event for each that has begun to wait."""
    state = ctx.state
    for name in [n for n, w in state.waiting.items() if w.reason == crash_loop.REASON and n not in backing_off]:
        del state.waiting[name]
    for name in backing_off:
        state.waiting[name] = state.crash_loop.waiting(state.pod, name)
        if message := state.crash_loop.event(state.pod, name, state.runtime.latest(name)):
            ctx.reporter.event(WARNING, "BackOff", message, name, grounds=_restart_at(ctx, name))


def _restart_at(ctx: PodContext, name: str) -> str:
    """Return in which time a container in back-off is restarted."""
    record = ctx.state.runtime.latest(name)
    restart_at = ctx.state.crash_loop.restart_at(ctx.state.pod, name, record) if record is not None else 0.0
    left = restart_at - ctx.deps.now()
    return f"it is restarted in {duration.render(left)}" if left > 0.0 else ""


async def _execute(ctx: PodContext, plan: Plan) -> bool:
    """Execute a plan; True if something was done, so that it is worth planning again."""
    if plan.stop_sandbox:
        await stop_sandboxes(ctx)
    if plan.new_sandbox is not None:
        return await create_sandbox(ctx, plan.new_sandbox)
    if plan.restart_all is not None:
        await _restart_all(ctx, plan.restart_all)
        return True
    done = False
    if plan.kill:
        await asyncio.gather(*(stop_container(ctx, kill, grace_of(ctx.state.pod, kill.grace)) for kill in plan.kill))
        ctx.state.resize.pod_unsettled |= any(kill.for_resize for kill in plan.kill)
        done = True
    done |= await actuate(ctx, plan.resize)
    if not await set_up_volumes(ctx):
        return done
    for start in plan.start:
        done |= await start_container(ctx, start)
        if start.kind is Kind.INIT:
            break  # what may follow depends on how it goes
    return done


async def _restart_all(ctx: PodContext, trigger: ContainerRecord) -> None:
    """Remove every container but debug containers; the next plan starts the pod again, in the sandbox that it has.

    As with upstream, no container gets a preStop hook or a grace period.
    """
    state = ctx.state
    ctx.reporter.publish()
    state.crash_loop.count(state.pod, trigger.name, state.runtime.latest(trigger.name))
    debug = {container.name for container in state.pod.spec.ephemeral_containers}
    alive = [record for record in state.runtime.alive if record.name not in debug]
    message = "Container {0} will be restarted with all others, because {1} ended"
    kills = (Kill(r.id, r.name, message.format(r.name, trigger.name)) for r in alive)
    await asyncio.gather(*(stop_container(ctx, kill, 0, hook=False) for kill in kills))
    ctx.reporter.publish()  # the API keeps the counts and how each has ended; a server that is away is not waited for
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_REPORT_SECONDS):
            await ctx.deps.writer.flushed(state.uid)
    for record in removal_order(state.runtime, trigger):
        if record.name not in debug:
            await remove_container(ctx, record.id)
