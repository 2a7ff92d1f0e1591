"""A pod's sandbox: made before its containers, stopped and made anew where it died or no longer fits.

Volumes are set up while the runtime makes it, because neither needs the other. That it died is often heard of first by a
container that cannot be started in it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from agent.lifecycle import Kill, grace_of
from agent.managers.errors import DynamicResourceError
from agent.pods import end as pod_end
from agent.pods import setup as pod_setup
from agent.pods.volumes import set_up_volumes
from agent.podspec.hosts import HostnameError
from agent.podspec.userns import UserNamespaceError
from cri.errors import CRIError
from kube.events import NORMAL, WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker

log = logging.getLogger(__name__)

_LOOKS, _LOOK_SECONDS = 4, 0.01  # the runtime writes an exit down some milliseconds after it


async def stop_old(worker: PodWorker) -> None:
    """Stop the pod's sandboxes and what still runs in them: a new one takes their place."""
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


async def make(worker: PodWorker, attempt: int) -> bool:
    """Make the pod's sandbox, while its volumes are set up; True where it is there now."""
    tools, pod = worker.tools, worker.pod
    try:
        handler = tools.runtime_handler(pod.spec.runtime_class_name) if pod.spec.runtime_class_name else ""
    except KeyError:
        _failed(worker, f'failed to get sandbox runtime: RuntimeClass "{pod.spec.runtime_class_name}" not found')
        return False
    try:
        await pod_setup.give_users(tools, pod, handler)
    except (UserNamespaceError, OSError) as error:
        _failed(worker, f"Failed to create pod sandbox: {error}")
        return False
    try:
        config = pod_setup.make_sandbox_config(tools, pod, attempt)
    except (HostnameError, UserNamespaceError) as error:
        _failed(worker, f"Failed to create pod sandbox: {error}")
        return False
    for reason, text in pod_setup.dns_complaints(tools, pod):
        worker.event(WARNING, reason, text)
    volumes = asyncio.create_task(set_up_volumes(worker), name=f"volumes of pod {worker.uid}")
    try:
        await tools.managers.prepare(pod)
        await pod_setup.make_folders(tools, pod)
        tools.observed.started_pods.inc()
        began = tools.clock.monotonic()
        sandbox = await tools.runtime.run_sandbox(config, handler)
        tools.observed.sandbox_seconds.observe(tools.clock.monotonic() - began, handler)
    except DynamicResourceError as error:
        worker.event(WARNING, "FailedPrepareDynamicResources", f"Failed to prepare dynamic resources: {error}")
        worker.retry_later("")
        return False
    except (CRIError, OSError) as error:
        text = error.grpc_text() if isinstance(error, CRIError) else str(error)
        worker.suspect |= isinstance(error, CRIError)  # it may be there all the same
        tools.observed.started_pod_errors.inc()
        if isinstance(error, CRIError):
            tools.observed.sandbox_errors.inc(handler)
        _failed(worker, f"Failed to create pod sandbox: {text}")
        return False
    else:
        worker.runtime = worker.runtime.with_sandbox(sandbox)
        worker.succeeded("")
        await volumes
        return True
    finally:
        if not volumes.done():
            volumes.cancel()
            await asyncio.gather(volumes, return_exceptions=True)


def _failed(worker: PodWorker, message: str) -> None:
    worker.event(WARNING, "FailedCreatePodSandBox", message)
    worker.retry_later("")


async def was_lost(worker: PodWorker, sandbox_id: str, name: str) -> bool:
    """Tell whether a container failed to start because its sandbox is dead, which is then known to the worker.

    Whoever stops a sandbox ends its containers first, so the news of their end comes before that of the sandbox's.
    That the container could not be started again in between is no failure of the container's.
    """
    for _ in range(_LOOKS):
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
