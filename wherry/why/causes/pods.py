"""Finds why a pod is not Ready."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta

from kube.api import core_v1
from kube.object_names import namespace_of
from wherry.why import commands
from wherry.why.causes import containers, probes
from wherry.why.causes.deletion import finalizers
from wherry.why.causes.nodes import not_ready
from wherry.why.causes.pod_claims import claims
from wherry.why.causes.scheduling import condition, unscheduled
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, reference
from wherry.why.owners import template_owner
from wherry.why.times import ago, duration, parsed

OVERDUE = timedelta(seconds=60)
"""Time that a node may take after the end of a pod's grace period. To delete it by force lets another one run beside it."""
_NETWORK_EVENTS = frozenset({"FailedCreatePodSandBox", "NetworkNotReady"})
_SETUP_EVENTS = _NETWORK_EVENTS | {
    "FailedMount",
    "FailedAttachVolume",
    "FailedMapVolume",
    "FailedPrepareDynamicResources",
}
_MISSING = re.compile(r'(configmap|secret) "([^"]+)" not found')
_NO_KEY = re.compile(r"references non-existent (config|secret) key: (\S+)")


async def causes(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return why a pod is not Ready; nothing if it is, or has succeeded."""
    if pod.metadata.deletion_timestamp is not None:
        return await _ending(diagnosis, pod)
    if pod.status.phase == "Succeeded":
        return ()
    if pod.status.phase == "Failed":
        return await _failed(diagnosis, pod)
    if not pod.spec.node_name:
        return await unscheduled(diagnosis, pod)
    ready = condition(pod, "Ready")
    if ready is not None and ready.status == "True":
        return _resize(pod)
    return (
        await _node(diagnosis, pod)
        or await containers.containers(diagnosis, pod)
        or await _setup(diagnosis, pod)
        or await probes.unready(diagnosis, pod)
        or _still_starting(diagnosis, pod)
    )


async def _node(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    name = pod.spec.node_name or ""
    node = await diagnosis.reader.get(core_v1.Node, name) if name else None
    if node is not None:
        return await not_ready(diagnosis, node)
    if name and diagnosis.reader.missing(core_v1.Node, name):
        return [Cause(f"its node {name} does not exist", commands.kubectl("delete", reference(pod)), reference(pod))]
    return ()


async def _ending(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    now, deleted, about = diagnosis.reader.now, parsed(pod.metadata.deletion_timestamp), reference(pod)
    if found := await _node(diagnosis, pod):
        return found
    if deleted is not None and deleted > now:
        rest, grace = duration((deleted - now).total_seconds()), pod.metadata.deletion_grace_period_seconds
        text = f"it is being deleted: its containers have {rest} left to end, of a grace period of {grace} s"
        return [Cause(text, about=about, waits=True)]
    if blockers := finalizers(pod, now):
        return blockers
    text = f"it was to have ended {ago(deleted, now)}, and node {pod.spec.node_name} has not reported that"
    if deleted is not None and now - deleted < OVERDUE:
        return [Cause(text, about=about, waits=True)]
    return [Cause(text, commands.kubectl("delete", about, "--force", "--grace-period=0"), about)]


async def _failed(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    about, status = reference(pod), pod.status
    delete = commands.kubectl("delete", about)
    if status.reason == "Evicted":
        return [Cause(f"node {pod.spec.node_name} evicted it: {status.message or ''}", delete, about)]
    if status.reason == "DeadlineExceeded":
        change = await template_owner(diagnosis.reader, pod)
        text = f"it ran longer than its activeDeadlineSeconds ({pod.spec.active_deadline_seconds})"
        return [Cause(text, commands.edit(change), about)]
    if status.reason:
        text = f"node {pod.spec.node_name} refused or ended it: {status.reason}: {status.message or ''}"
        return [Cause(text, delete, about)]
    failed = Cause("its containers have failed", commands.kubectl("describe", about), about)
    return await containers.containers(diagnosis, pod) or [failed]


async def _setup(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return why the node has not begun to start containers: volumes and the pod's network."""
    statuses = pod.status.container_statuses
    if any(each.state is not None and each.state.running is not None for each in statuses):
        return ()
    if found := await claims(diagnosis, pod):
        return found
    about, namespace = reference(pod), namespace_of(pod)
    for event in reversed(await diagnosis.reader.events(pod)):
        message = event.message or ""
        if event.reason not in _SETUP_EVENTS:
            continue
        if missing := _MISSING.search(message):
            kind, name = missing[1], missing[2]
            text = f"one of its volumes uses the {kind} {name}, which does not exist"
            return [Cause(text, commands.create_missing(kind, name, namespace), about)]
        what = "its network" if event.reason in _NETWORK_EVENTS else "one of its volumes"
        if missing := _NO_KEY.search(message):
            message = f"it uses the key {missing[2]}, which does not exist"
        text = f"{what} cannot be set up on node {pod.spec.node_name}: {message}"
        return [Cause(text, commands.kubectl("describe", about), about)]
    return ()


def _still_starting(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    since = ago(parsed(pod.status.start_time or pod.metadata.creation_timestamp), diagnosis.reader.now)
    if pod.status.start_time is None:
        return [Cause(f"node {pod.spec.node_name} has not begun with it yet (created {since})", waits=True)]
    inits = pod.status.init_container_statuses
    sidecars = {each.name for each in pod.spec.init_containers if each.restart_policy == "Always"}
    running = [
        each.name
        for each in inits
        if each.name not in sidecars and each.state is not None and each.state.running is not None
    ]
    if ended := _ended(pod):
        text = (
            f"container {' and '.join(ended)} has ended without an error, and the pod is not Ready until the others have "
            f"ended too (it began {since})"
        )
        return [Cause(text, about=reference(pod), waits=True)]
    doing = f"its init container {running[0]} runs" if running else "its containers are being started"
    return [Cause(f"{doing} (it began {since})", waits=True)]


def _ended(pod: core_v1.Pod) -> list[str]:
    """Return the containers that have completed while others run."""
    states = {each.name: each.state for each in pod.status.container_statuses if each.state is not None}
    if not any(state.running is not None for state in states.values()):
        return []
    return [name for name, state in states.items() if state.terminated is not None and not state.terminated.exit_code]


def _resize(pod: core_v1.Pod) -> Sequence[Cause]:
    for kind in ("PodResizePending", "PodResizeInProgress"):
        found = condition(pod, kind)
        if found is not None and found.status == "True" and (found.reason or found.message):
            text = f"its resize is not done: {found.reason or kind}: {found.message or ''}".rstrip(": ")
            about = reference(pod)
            return [Cause(text, commands.kubectl("describe", about), about, waits=found.reason == "Deferred")]
    return ()
