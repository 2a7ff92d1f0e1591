"""Carrying out a plan: sandboxes, kills and starts of one pod, with the events and waiting reasons that tell of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING

from agent.contracts import HookError
from agent.images.manager import ImageError
from agent.lifecycle import Kill, Kind, Plan, Resize, Start, container_hash, find_container, grace_of
from agent.managers.errors import DynamicResourceError
from agent.pods import end as pod_end
from agent.pods import resize
from agent.pods import setup as pod_setup
from agent.podspec.environment import ConfigError
from agent.podspec.security import AnyContainer
from agent.podspec.userns import UserNamespaceError
from agent.records import ContainerRecord, State
from agent.status.container import Waiting
from agent.volumes.image import pulled
from agent.volumes.manager import MountsFailed
from cri.errors import CRIError
from kube.api import core_v1
from kube.events import NORMAL, WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

log = logging.getLogger(__name__)

_TYPES = {Kind.INIT: "init_container", Kind.MAIN: "container", Kind.EPHEMERAL: "ephemeral_container"}
"""Upstream's names in metrics."""
_TELL_SECONDS = 2.0
_LOOKS_AT_SANDBOX, _LOOK_SECONDS = 4, 0.01  # the runtime writes an exit down some milliseconds after it


async def carry_out(worker: PodWorker, plan: Plan) -> bool:
    """Do what the plan says; True where something was done, so that it is worth planning again."""
    if plan.stop_sandbox:
        await _stop_old_sandboxes(worker)
    if plan.new_sandbox is not None:
        return await _make_sandbox(worker, plan.new_sandbox)
    if plan.restart_all is not None:
        await _restart_all(worker, plan.restart_all)
        return True
    done = False
    if plan.kill:
        await asyncio.gather(*(_kill(worker, kill) for kill in plan.kill))
        done = True
    for change in plan.resize:
        done |= await _resize(worker, change)
    if not await _volumes(worker):
        return done
    for start in plan.start:
        done |= await _start(worker, start)
        if start.kind is Kind.INIT:
            break  # what may follow depends on how it goes
    return done


# -- the sandbox ------------------------------------------------------------------------------------------------------
async def _stop_old_sandboxes(worker: PodWorker) -> None:
    worker.event(NORMAL, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
    grace = grace_of(worker.pod)
    await asyncio.gather(
        *(
            pod_end.stop_container(worker, Kill(c.id, c.name, f"Stopping container {c.name}"), grace)
            for c in worker.runtime.alive
        )
    )
    for sandbox in worker.runtime.sandboxes:
        try:
            await worker.tools.runtime.stop_sandbox(sandbox.id)
            record = await worker.tools.runtime.sandbox(sandbox.id)
        except CRIError as error:
            log.warning("pod %s: stopping sandbox %s: %s", worker.uid, sandbox.id[:13], error)
            continue
        if record is None:
            worker.runtime = worker.runtime.without_sandbox(sandbox.id)
        else:
            worker.runtime = worker.runtime.with_sandbox(record)
    for container in worker.runtime.alive:
        await worker.reload(container.id)


async def _make_sandbox(worker: PodWorker, attempt: int) -> bool:
    """Make the pod's sandbox, while its volumes are set up; True where it is there now."""
    tools, pod = worker.tools, worker.pod
    try:
        handler = tools.runtime_handler(pod.spec.runtime_class_name) if pod.spec.runtime_class_name else ""
    except KeyError:
        _sandbox_failed(
            worker, f'failed to get sandbox runtime: RuntimeClass "{pod.spec.runtime_class_name}" not found'
        )
        return False
    try:
        await pod_setup.give_users(tools, pod, handler)
    except (UserNamespaceError, OSError) as error:
        _sandbox_failed(worker, f"Failed to create pod sandbox: {error}")
        return False
    config = pod_setup.make_sandbox_config(tools, pod, attempt)
    volumes = asyncio.create_task(_volumes(worker), name=f"volumes of pod {worker.uid}")
    try:
        await tools.managers.prepare(pod)
        await pod_setup.make_folders(tools, pod)
        tools.observed.started_pods.inc()
        began = tools.clock.monotonic()
        sandbox = await tools.runtime.run_sandbox(config, handler)
        tools.observed.sandbox_seconds.observe(tools.clock.monotonic() - began, handler)
    except DynamicResourceError as error:
        worker.event(WARNING, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
        _retry_later(worker, "")
        return False
    except (CRIError, OSError) as error:
        text = error.grpc_text() if isinstance(error, CRIError) else str(error)
        worker.suspect |= isinstance(error, CRIError)  # it may be there all the same
        tools.observed.started_pod_errors.inc()
        if isinstance(error, CRIError):
            tools.observed.sandbox_errors.inc(handler)
        _sandbox_failed(worker, f"Failed to create pod sandbox: {text}")
        return False
    else:
        worker.runtime = worker.runtime.with_sandbox(sandbox)
        worker.retry_at.pop("", None)
        worker.failures.reset("")
        await volumes
        return True
    finally:
        if not volumes.done():
            volumes.cancel()
            await asyncio.gather(volumes, return_exceptions=True)


def _sandbox_failed(worker: PodWorker, message: str) -> None:
    worker.event(WARNING, "FailedCreatePodSandBox", message)
    _retry_later(worker, "")


def _retry_later(worker: PodWorker, name: str) -> None:
    now = worker.tools.now()
    worker.retry_at[name] = now + worker.failures.next(name, now)


async def _volumes(worker: PodWorker) -> bool:
    """Set the volumes up where that was not done or their contents are due; True where all are there."""
    now = worker.tools.now()
    due = worker.contents_due is not None and worker.contents_due <= now
    if worker.mounted is not None and not due:
        return True
    if worker.mounted is None and worker.retry_at.get("/volumes", 0.0) > now:
        return False
    tools, pod = worker.tools, worker.pod
    worker.contents_due = None
    await tools.references.ready(worker.uid)
    if not worker.static:  # a static pod runs before there is an API
        await tools.services.wait_synced()
    try:
        worker.mounted, worker.contents_due = await tools.volumes.mount(pod)
    except MountsFailed as error:
        for failed in error.failed:
            worker.event(WARNING, "FailedMount", str(failed))
        if worker.mounted is not None:
            # The containers keep what they have, as with upstream.
            worker.contents_due = now + 60.0
            return True
        _retry_later(worker, "/volumes")
        return False
    worker.retry_at.pop("/volumes", None)
    worker.failures.reset("/volumes")
    return True


# -- containers -------------------------------------------------------------------------------------------------------
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
    for record in sorted(worker.runtime.containers, key=lambda r: r.id == trigger.id):
        if record.name not in debug:
            await worker.remove_container(record.id)


async def _kill(worker: PodWorker, kill: Kill) -> None:
    await pod_end.stop_container(worker, kill, grace_of(worker.pod, kill.grace))


async def _start(worker: PodWorker, start: Start) -> bool:
    """Start one container; True where it runs, otherwise its waiting reason says why not."""
    found = find_container(worker.pod, start.name)
    sandbox = worker.runtime.sandbox
    if found is None or sandbox is None:
        return False
    container, kind = found
    tools, pod = worker.tools, worker.pod
    worker.crash_loop.count(start.name)
    tools.observed.started_containers.inc(_TYPES[kind])
    config = worker.sandbox_config()
    try:
        if start.restart_count:  # for another size of the pod, maybe: what is above a container must not be smaller
            await pod_setup.make_folders(tools, pod)
        secrets = await pod_setup.pull_secrets(tools, pod)
        path = pod_setup.field_path(kind, start.name)
        image = await tools.images.ensure(pod, container, path, secrets, config)
        mounted = await pulled(
            tools.images, tools.node.runtime, pod, container, worker.mounted or {}, path, secrets, config
        )
        made = await pod_setup.make_container_config(
            tools,
            pod,
            container,
            start,
            image=image,
            pod_ips=tools.node.host_ips if pod.spec.host_network else sandbox.ips,
            mounted=mounted,
            target_id=_target(worker, container),
        )
    except ImageError as error:
        worker.event(WARNING, "Failed", f"Error: {error.reason}", start.name)
        tools.observed.started_container_errors.inc(_TYPES[kind], error.reason)
        worker.waiting[start.name] = Waiting(error.reason, error.message)
        worker.retry_at[start.name] = error.retry_at
        return False
    except (ConfigError, OSError) as error:
        return _failed(worker, start.name, "CreateContainerConfigError", str(error))
    try:
        container_id = await tools.runtime.create(sandbox.id, made, config)
    except CRIError as error:
        if await _sandbox_lost(worker, sandbox.id, start.name):
            return True
        return _failed(worker, start.name, "CreateContainerError", error.message)
    # Known before it starts, so that news of a quick end finds it.
    worker.runtime = worker.runtime.with_container(
        ContainerRecord(
            id=container_id,
            name=start.name,
            state=State.CREATED,
            restart_count=start.restart_count,
            sandbox_id=sandbox.id,
            hash=container_hash(container),
            created_at=tools.now(),
        )
    )
    worker.event(NORMAL, "Created", "Container created", start.name)
    try:
        await tools.runtime.start(container_id)
    except CRIError as error:
        if await _sandbox_lost(worker, sandbox.id, start.name):
            await worker.remove_container(container_id)
            return True
        await worker.reload(container_id)
        return _failed(worker, start.name, "RunContainerError", error.message)
    worker.event(NORMAL, "Started", "Container started", start.name)
    pod_setup.link_log(tools, pod, made, container_id)
    await worker.reload(container_id)
    worker.waiting.pop(start.name, None)
    worker.retry_at.pop(start.name, None)
    await _note_size(worker, container, container_id)
    worker.failures.reset(start.name)
    if container.lifecycle is not None and container.lifecycle.post_start is not None:
        # Nobody sees or probes the container as running before its hook has ended.
        with worker.quiet():
            started = await _post_start(worker, container, container_id, container.lifecycle.post_start)
        if not started:
            return False
    worker.probe()
    return True


async def _note_size(worker: PodWorker, container: AnyContainer, container_id: str) -> None:
    """Remember what a container was given, for the next agent; most have no size and need no note."""
    if worker.applied is None or not isinstance(container, core_v1.Container):
        return
    alive = {record.id for record in worker.runtime.alive}
    kept = {known: given for known, given in worker.applied.items() if known in alive}
    given = container.resources or core_v1.ResourceRequirements()
    worker.applied = {**kept, container_id: given}
    if any(sized.limits or sized.requests for sized in worker.applied.values()):
        await asyncio.to_thread(resize.save, worker.tools.volumes.pod_dir(worker.uid), worker.applied)


async def _resize(worker: PodWorker, change: Resize) -> bool:
    """Give a running container the resources of its spec; True where it has them now."""
    found = find_container(worker.pod, change.name)
    if found is None or worker.retry_at.get(f"/resize/{change.name}", 0.0) > worker.tools.now():
        return False
    tools, pod, container = worker.tools, worker.pod, found[0]
    try:
        await _check_use(worker, container, change.id)
        # A parent must not be smaller than its child: the pod's cgroup first to grow, and last to shrink.
        await pod_setup.make_folders(tools, pod)
        resources = pod_setup.make_resources(tools, pod, container)
        await tools.runtime.client.runtime.update_container_resources(change.id, resources)
        await pod_setup.make_folders(tools, pod)
    except (CRIError, OSError, resize.ResizeError) as error:
        worker.resize_error = str(error)
        log.warning("pod %s: resizing %s: %s", worker.uid, change.name, error)
        _retry_later(worker, f"/resize/{change.name}")
        return False
    worker.resize_error = ""
    worker.retry_at.pop(f"/resize/{change.name}", None)
    await _note_size(worker, container, change.id)
    return True


async def _check_use(worker: PodWorker, container: AnyContainer, container_id: str) -> None:
    """Raise ResizeError where a container uses more memory than it is to have: the kernel would kill it."""
    applied = (worker.applied or {}).get(container_id)
    if isinstance(container, core_v1.Container) and resize.shrinks_memory(container, applied):
        memory = (await worker.tools.runtime.client.runtime.container_stats(container_id)).memory
        resize.check_use(container, applied, memory.usage_bytes.value or memory.working_set_bytes.value)


async def _sandbox_lost(worker: PodWorker, sandbox_id: str, name: str) -> bool:
    """Tell whether a container failed to start because its sandbox is dead, which is then known to the worker.

    Whoever stops a sandbox ends its containers first, so the news of their end comes before that of the sandbox's.
    That the container could not be started again in between is no failure of the container's.
    """
    for _ in range(_LOOKS_AT_SANDBOX):
        try:
            record = await worker.tools.runtime.sandbox(sandbox_id)
        except CRIError:
            return False
        if record is None or not record.ready:
            known = worker.runtime
            worker.runtime = known.with_sandbox(record) if record else known.without_sandbox(sandbox_id)
            worker.crash_loop.forgive(name)
            return True
        await worker.tools.clock.sleep(_LOOK_SECONDS)
    return False


def _failed(worker: PodWorker, name: str, reason: str, message: str) -> bool:
    found = find_container(worker.pod, name)
    if found is not None:
        worker.tools.observed.started_container_errors.inc(_TYPES[found[1]], reason)
    worker.event(WARNING, "Failed", f"Error: {message}", name)
    worker.waiting[name] = Waiting(reason, message)
    _retry_later(worker, name)
    return False


def _target(worker: PodWorker, container: AnyContainer) -> str:
    """Return the running container whose process namespace a debug container joins."""
    name = container.target_container_name if isinstance(container, core_v1.EphemeralContainer) else None
    record = worker.runtime.latest(name) if name else None
    return record.id if record is not None and record.running else ""


async def _post_start(
    worker: PodWorker, container: AnyContainer, container_id: str, handler: core_v1.LifecycleHandler
) -> bool:
    """Run the postStart hook; a container whose hook fails is killed."""
    assert isinstance(container, core_v1.Container)
    sandbox = worker.runtime.sandbox
    ip = sandbox.ips[0] if sandbox and sandbox.ips else ""
    try:
        await worker.tools.hooks.run(worker.pod, ip, container, container_id, handler)
    except HookError as error:
        worker.event(WARNING, "FailedPostStartHook", "PostStartHook failed", container.name)
        log.info("pod %s: postStart hook of %s: %s", worker.uid, container.name, error)
        kill = Kill(container_id, container.name, "FailedPostStartHook")
        await pod_end.stop_container(worker, kill, grace_of(worker.pod))
        worker.waiting[container.name] = Waiting("PostStartHookError", f"PostStart handler: {error}")
        return False
    return True
