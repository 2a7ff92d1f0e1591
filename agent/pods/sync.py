"""One round of a pod: the state machine is asked what to do (lifecycle.plan), that is done, and it is asked again.

A round ends when nothing more is to be done now; the worker is then told when to look again. What comes between shows in
the status only where it lasts: the first round tells that the agent has the pod (kubectl: ContainerCreating).
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from agent.lifecycle import End, Kill, Kind, Plan, Situation, grace_of, plan, removal_order
from agent.pods import actuation, allocation, resize, sandbox
from agent.pods import end as pod_end
from agent.pods.start import start_container
from agent.pods.volumes import set_up_volumes
from agent.records import ContainerRecord
from agent.status.phase import ENDED_PHASES
from agent.status.pod import summed_phase
from kube.events import NORMAL, WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

_TELL_SECONDS = 2.0
"""How long the API may take to hear of containers that are about to be removed."""


async def sync(worker: PodWorker) -> None:
    """Do what the state machine says until it has nothing more to say. Raise CRIError."""
    if worker.applied is None:
        worker.applied = await actuation.noted(worker)
    if not worker.placed and not await _place(worker):
        return
    if worker.suspect:
        await pod_end.look_for_leftovers(worker)
    rounds = 0
    while True:
        worker.due = False
        now, moment = worker.tools.now(), worker.tools.monotonic()
        worker.probe()
        _hold_resize(worker)
        decided = plan(
            Situation(
                pod=worker.basis(),
                runtime=worker.runtime,
                now=now,
                outcomes=worker.outcomes(),
                ready_at=worker.crash_loop.ready_at,
                retry_at={name: now + at - moment for name, at in worker.retry_at.items()},
                applied=worker.applied,
                hold_resize=worker.held is not None,
            )
        )
        worker.crash_loop.show(decided.backing_off)
        if decided.end is not None:
            worker.end = decided.end
            if decided.end.reason:
                worker.event(NORMAL, decided.end.reason, decided.end.message)
            worker.look_again()
            return
        if rounds == 0:
            worker.publish()
            told = worker.last_status
            if told is not None and (
                told.phase in ENDED_PHASES or summed_phase(worker.basis(), told, worker.runtime) in ENDED_PHASES
            ):
                # What may not run again was lost by the runtime: nothing is started, what is left is stopped.
                worker.end = End()
                worker.look_again()
                return
        else:
            worker.publish_late()
        rounds += 1
        news = worker.news
        progressed = await _carry_out(worker, decided)
        if news != worker.news:
            # What failed meanwhile may have looked before the news came: it does not wait for its back-off.
            worker.contents_due = 0.0
            worker.retry_at.clear()
        for container_id in decided.remove:
            await worker.remove_container(container_id)
        for sandbox_id in decided.remove_sandboxes:
            await pod_end.remove_sandbox(worker, sandbox_id)
        if not progressed and not worker.due:
            worker.publish()
            worker.wake_at(moment + decided.wake_at - now if decided.wake_at is not None else None)
            # What was due before was considered, and waits for something else (a longer back-off).
            worker.wake_at(min((at for at in worker.retry_at.values() if at > moment), default=None))
            worker.wake_at(worker.contents_due)
            await worker.tools.resources.allocated.save()
            return


async def _place(worker: PodWorker) -> bool:
    """Have the node's managers give the pod what it asks for; False where it fails for want of it."""
    running = {record.name for record in worker.runtime.alive}
    refused = await worker.tools.managers.admit(worker.pod, running)
    if refused is None:
        worker.placed = True
        return True
    worker.rejected = worker.end = refused
    worker.event(WARNING, refused.reason, refused.told)
    worker.look_again()
    return False


def _hold_resize(worker: PodWorker) -> None:
    """Note whether a new size has to wait, and tell how far it is."""
    pod, runtime = worker.pod, worker.runtime
    differs = resize.differs(pod, runtime, worker.applied) or allocation.differs(pod, worker.allocated)
    worker.held = worker.hold_resize(pod) if differs else None
    before = allocation.sizes(worker.allocated), worker.allocated.spec.resources
    has = allocation.granted(worker.allocated, runtime, worker.applied) if worker.held is not None else {}
    worker.allocated = allocation.in_size(pod, has) if has else pod
    granted = allocation.sizes(worker.allocated)
    if (granted, worker.allocated.spec.resources) != before:
        worker.size_changed()
    worker.tools.resources.allocated.put(worker.uid, granted, worker.allocated.spec.resources)
    settled = all((found := runtime.latest(c.name)) and found.running for c in pod.spec.containers)
    worker.resize_story.look(pod, differs=differs, held=worker.held, settled=settled)


async def _carry_out(worker: PodWorker, plan: Plan) -> bool:
    """Do what the plan says; True where something was done, so that it is worth planning again."""
    if plan.stop_sandbox:
        await sandbox.stop_old(worker)
    if plan.new_sandbox is not None:
        return await sandbox.make(worker, plan.new_sandbox)
    if plan.restart_all is not None:
        await _restart_all(worker, plan.restart_all)
        return True
    done = False
    if plan.kill:
        await asyncio.gather(
            *(pod_end.stop_container(worker, kill, grace_of(worker.pod, kill.grace)) for kill in plan.kill)
        )
        done = True
    for change in plan.resize:
        done |= await actuation.actuate(worker, change)
    if not await set_up_volumes(worker):
        return done
    for start in plan.start:
        done |= await start_container(worker, start)
        if start.kind is Kind.INIT:
            break  # what may follow depends on how it goes
    return done


async def _restart_all(worker: PodWorker, trigger: ContainerRecord) -> None:
    """Take every container away but debug containers; what follows is a pod that starts, in the sandbox that it has.

    As upstream has it, nobody is given time to end: no preStop hook, no grace.
    """
    worker.publish()
    worker.crash_loop.count(trigger.name)
    debug = {container.name for container in worker.pod.spec.ephemeral_containers}
    alive = [record for record in worker.runtime.alive if record.name not in debug]
    message = "Container {0} will be restarted with all others, because {1} ended"
    kills = (Kill(r.id, r.name, message.format(r.name, trigger.name)) for r in alive)
    await asyncio.gather(*(pod_end.stop_container(worker, kill, 0, False) for kill in kills))
    worker.publish()  # the API keeps the counts and how each has ended; a server that is away is not waited for
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TELL_SECONDS):
            await worker.tools.writer.flushed(worker.uid)
    for record in removal_order(worker.runtime, trigger):
        if record.name not in debug:
            await worker.remove_container(record.id)
