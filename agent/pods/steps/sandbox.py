"""Creates a pod's sandbox before its containers, and replaces it if it died or no longer matches the pod.

Volumes are set up while the runtime creates the sandbox, because they are independent. Often the first sign of a dead
sandbox is a container that cannot be started in it. Without a pod network only pods of the host network get a sandbox, so that
a CNI plugin can be installed by one.
"""

from __future__ import annotations

import asyncio
import logging

from agent.lifecycle import Kill, grace_of
from agent.managers.errors import DynamicResourceError
from agent.pods import setup as pod_setup
from agent.pods.context import PodContext
from agent.pods.state import SANDBOX
from agent.pods.steps.record_updates import reload_container
from agent.pods.steps.resize import record_pod_actuated
from agent.pods.steps.termination import stop_container
from agent.pods.steps.volumes import set_up_volumes
from agent.podspec.hosts import HostnameError
from agent.podspec.sandbox import metadata_warning
from agent.podspec.userns import UserNamespaceError
from agent.runtime_records import SandboxRecord
from cri.errors import CRIError
from kube import duration
from kube.events import NORMAL, WARNING

log = logging.getLogger(__name__)

NETWORK_SECONDS = 1.0
"""Seconds between checks whether there is a pod network (upstream's back-off of transient errors)."""
_READS, _READ_SECONDS = 4, 0.01  # the runtime records an exit some milliseconds after it


async def stop_sandboxes(ctx: PodContext) -> None:
    """Stop the pod's sandboxes and what still runs in them, so that a new one takes their place."""
    state = ctx.state
    ctx.reporter.event(NORMAL, "SandboxChanged", "Pod sandbox changed, it will be killed and re-created.")
    grace = grace_of(state.pod)
    await asyncio.gather(
        *(stop_container(ctx, Kill(c.id, c.name, f"Stopping container {c.name}"), grace) for c in state.runtime.alive)
    )
    for sandbox in state.runtime.sandboxes:
        try:
            await ctx.deps.runtime.stop_sandbox(sandbox.id, state.pod.metadata.namespace or "")
            record = await ctx.deps.runtime.sandbox(sandbox.id)
        except CRIError as error:
            log.warning("pod %s: stopping sandbox %s: %s", state.uid, sandbox.id[:13], error)
            continue
        if record is None:
            state.runtime = state.runtime.without_sandbox(sandbox.id)
        else:
            state.runtime = state.runtime.with_sandbox(record)
    for container in state.runtime.alive:
        await reload_container(ctx, container.id)


async def create_sandbox(ctx: PodContext, attempt: int) -> bool:
    """Create the pod's sandbox, while its volumes are set up; True if it is ready."""
    state, deps = ctx.state, ctx.deps
    pod = state.resize.allocated
    if not pod.spec.host_network and not _has_network(ctx):
        return False
    try:
        handler = deps.runtime_handler(pod.spec.runtime_class_name) if pod.spec.runtime_class_name else ""
    except KeyError:
        _failed(ctx, f'failed to get sandbox runtime: RuntimeClass "{pod.spec.runtime_class_name}" not found')
        return False
    try:
        await pod_setup.allocate_ids(deps, pod, handler)
    except (UserNamespaceError, OSError) as error:
        _failed(ctx, f"Failed to create pod sandbox: {error}")
        return False
    try:
        config = pod_setup.make_sandbox_config(deps, pod, attempt)
    except (HostnameError, UserNamespaceError) as error:
        _failed(ctx, f"Failed to create pod sandbox: {error}")
        return False
    for reason, text in pod_setup.dns_warnings(deps, pod):
        ctx.reporter.event(WARNING, reason, text)
    if text := metadata_warning(pod, config):
        ctx.reporter.event(WARNING, "PodMetadataTooLarge", text)
    volumes = asyncio.create_task(set_up_volumes(ctx), name=f"volumes of pod {state.uid}")
    try:
        await deps.managers.prepare(pod)
        await pod_setup.make_folders(deps, pod)
        deps.metrics.started_pods.inc()
        began = deps.clock.monotonic()
        sandbox = await deps.runtime.run_sandbox(config, handler)
        elapsed = deps.clock.monotonic() - began
        deps.metrics.sandbox_seconds.observe(elapsed, handler)
        ctx.reporter.decided(_created(sandbox, elapsed, host_network=bool(pod.spec.host_network)))
    except DynamicResourceError as error:
        message = f"Failed to prepare dynamic resources: {error}"
        grounds = state.step_back_off.failed(SANDBOX)
        ctx.reporter.event(WARNING, "FailedPrepareDynamicResources", message, grounds=grounds)
        return False
    except (CRIError, OSError) as error:
        text = error.grpc_text() if isinstance(error, CRIError) else str(error)
        state.runtime_uncertain |= isinstance(error, CRIError)  # it may be there all the same
        deps.metrics.started_pod_errors.inc()
        if isinstance(error, CRIError):
            deps.metrics.sandbox_errors.inc(handler)
        _failed(ctx, f"Failed to create pod sandbox: {text}")
        return False
    else:
        state.runtime = state.runtime.with_sandbox(sandbox)
        await record_pod_actuated(ctx)
        state.step_back_off.succeeded(SANDBOX)
        _report_addresses(ctx)
        await volumes
        return True
    finally:
        if not volumes.done():
            volumes.cancel()
            await asyncio.gather(volumes, return_exceptions=True)


def _has_network(ctx: PodContext) -> bool:
    """Return whether there is a pod network; otherwise report that once, and check again soon (kubelet.go, SyncPod)."""
    state, problem = ctx.state, ctx.deps.node.network_problem
    if problem:
        if problem != state.network_problem:
            ctx.reporter.event(WARNING, "NetworkNotReady", f"network is not ready: {problem}")
        state.step_back_off.retry_at[SANDBOX] = ctx.deps.monotonic() + NETWORK_SECONDS
    state.network_problem = problem
    return not problem


def _report_addresses(ctx: PodContext) -> None:
    """Report another address than the status has before a container runs: network policies and EndpointSlices go by it."""
    last, sandbox = ctx.reporter.last_status, ctx.state.runtime.sandbox
    known = [each.ip for each in last.pod_ips] if last is not None else []
    if known and sandbox is not None and not ctx.state.pod.spec.host_network and list(sandbox.ips) != known:
        ctx.reporter.publish()


def _created(sandbox: SandboxRecord, elapsed: float, *, host_network: bool) -> str:
    network = "on the host's network" if host_network else f"with the addresses {', '.join(sandbox.ips)}"
    return f"pod sandbox and network were set up in {duration.render(elapsed)}, {network}"


def _failed(ctx: PodContext, message: str) -> None:
    grounds = ctx.state.step_back_off.failed(SANDBOX)
    ctx.reporter.event(WARNING, "FailedCreatePodSandBox", message, grounds=grounds)


async def sandbox_died(ctx: PodContext, sandbox_id: str, name: str) -> bool:
    """Return whether a container failed to start because its sandbox is dead, and record that.

    Whoever stops a sandbox ends its containers first, so their exit events come before that of the sandbox.
    A container that could not be restarted in between has not failed.
    """
    state = ctx.state
    for _ in range(_READS):
        try:
            record = await ctx.deps.runtime.sandbox(sandbox_id)
        except CRIError:
            return False
        if record is None or not record.ready:
            known = state.runtime
            state.runtime = known.with_sandbox(record) if record else known.without_sandbox(sandbox_id)
            state.crash_loop.forget_restarts(state.pod, name)
            return True
        await ctx.deps.clock.sleep(_READ_SECONDS)
    return False
