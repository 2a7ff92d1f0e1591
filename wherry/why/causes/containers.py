"""Finds why containers of a pod wait, exit or restart."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kube import quantity
from kube.api import core_v1
from kube.object_names import namespace_of
from wherry.why import commands
from wherry.why.causes import images, probes
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.owners import template_owner

CONFIG_ERRORS = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError", "StartError"})
NORMAL_WAITS = frozenset({"", "ContainerCreating", "PodInitializing"})
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 6: "SIGABRT", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}
_NO_PROGRAM = re.compile(r"executable file not found|no such file or directory|exec format error", re.I)
_NO_OBJECT = re.compile(r'(configmap|secret) "([^"]+)" not found')
_NO_KEY = re.compile(r"couldn't find key (\S+) in (ConfigMap|Secret) (\S+)")


async def containers(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return a cause for the first container that cannot go on, in the order in which they start."""
    specs = {each.name: each for each in (*pod.spec.init_containers, *pod.spec.containers)}
    change = await template_owner(diagnosis.reader, pod)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        container = specs.get(status.name)
        if container is None or status.state is None:
            continue
        if cause := await _of_one(diagnosis, pod, container, status, change):
            return [cause]
    return ()


async def _of_one(
    diagnosis: Diagnosis,
    pod: core_v1.Pod,
    container: core_v1.Container,
    status: core_v1.ContainerStatus,
    change: Reference,
) -> Cause | None:
    """Return why one container cannot go on; `change` is the object with its template."""
    state = status.state or core_v1.ContainerState()
    if state.waiting is None:
        ended = state.terminated
        if ended is not None and (ended.exit_code or ended.reason == "OOMKilled"):
            return await exited(diagnosis, pod, container, status, change)
        return None
    reason, message = state.waiting.reason or "", state.waiting.message or ""
    if reason in images.REASONS:
        return await images.pull(diagnosis, pod, container, status)
    if reason in CONFIG_ERRORS:
        return _cannot_start(pod, container, message or reason, change)
    if reason == "CrashLoopBackOff" or (reason in NORMAL_WAITS and status.restart_count):
        return await exited(diagnosis, pod, container, status, change)
    if reason not in NORMAL_WAITS:
        about = reference(pod)
        return Cause(
            f"container {container.name} waits: {reason}: {message}", commands.kubectl("describe", about), about
        )
    return None


def _cannot_start(pod: core_v1.Pod, container: core_v1.Container, message: str, change: Reference) -> Cause:
    about, namespace, what = reference(pod), namespace_of(pod), f"container {container.name}"
    if found := _NO_OBJECT.search(message):
        kind, name = found[1], found[2]
        fix = commands.create_missing(kind, name, namespace)
        return Cause(f"{what} uses the {kind} {name}, which does not exist", fix, about)
    if found := _NO_KEY.search(message):
        key, kind, name = found[1], found[2], found[3].rpartition("/")[2]
        fix = commands.edit(Reference(kind, name, namespace))
        return Cause(f"{what} uses the key {key} of the {kind.lower()} {name}, which has no such key", fix, about)
    if "runAsNonRoot" in message or "run as root" in message:
        fix = commands.patch_container(change, container.name, {"securityContext": {"runAsUser": 1000}})
        text = f"{what} must not run as root (runAsNonRoot), and its image names no other user by number"
        return Cause(text, fix, about)
    if _NO_PROGRAM.search(message):
        program = (container.command or container.args or ["of the image"])[0]
        text = f"the program {program} of {what} does not exist in image {container.image}, or is for another machine"
        return Cause(text, commands.edit(change), about)
    return Cause(f"{what} cannot start: {message}", commands.edit(change), about)


async def exited(
    diagnosis: Diagnosis,
    pod: core_v1.Pod,
    container: core_v1.Container,
    status: core_v1.ContainerStatus,
    change: Reference,
) -> Cause:
    """Return why a container has ended, or ends again and again."""
    about, what = reference(pod), f"container {container.name}"
    now, before = (each.terminated if each is not None else None for each in (status.state, status.last_state))
    ended = now or before
    often = (
        f" ({status.restart_count} restart{'s' if status.restart_count > 1 else ''})" if status.restart_count else ""
    )
    logs = commands.logs(about, container.name, previous=now is None)
    if ended is None:
        return Cause(f"{what} ends again and again{often}", logs, about)
    if ended.reason == "OOMKilled":
        return _killed_for_memory(pod, container, often, change)
    if cause := await probes.killed(diagnosis, pod, container, often, change):
        return cause
    if ended.reason in ("StartError", "ContainerCannotRun"):
        return _cannot_start(pod, container, ended.message or ended.reason, change)
    if ended.exit_code == 0:
        policy = pod.spec.restart_policy or "Always"
        text = f"{what} ends without an error, and is started again because of its restart policy {policy}{often}"
        return Cause(text, commands.edit(change), about)
    return Cause(f"{what} {_how(ended)}{often}", logs, about)


def _how(ended: core_v1.ContainerStateTerminated) -> str:
    code = ended.exit_code
    if code in (126, 127):
        return f"starts a program that {'was not found' if code == 127 else 'cannot be executed'} (exit code {code})"
    signal = SIGNALS.get(code - 128)
    how = f"was ended by {signal} (exit code {code})" if signal else f"exited with code {code}"
    lines = [line.strip() for line in (ended.message or "").splitlines() if line.strip()]
    return f"{how}: {lines[-1]}" if lines else how


def _killed_for_memory(pod: core_v1.Pod, container: core_v1.Container, often: str, change: Reference) -> Cause:
    limit = container.resources.limits.get("memory") if container.resources is not None else None
    what = f"its limit of {limit}" if limit is not None else f"node {pod.spec.node_name} had"
    twice = "512Mi" if limit is None else f"{max(1, (2 * quantity.value(limit)) >> 20)}Mi"
    text = f"container {container.name} was killed because it used more memory than {what}{often}"
    return Cause(text, commands.set_resources(change, container.name, limits=f"memory={twice}"), reference(pod))
