"""Probes that fail: a readiness probe keeps a pod from traffic, the others restart its container."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from kube.api import core_v1
from wherry.why import commands
from wherry.why.diagnosis import Diagnosis
from wherry.why.model import Cause, Reference, reference
from wherry.why.owners import template_owner
from wherry.why.times import parsed

_FAILED = re.compile(r"^(Readiness|Liveness|Startup) probe (?:failed|errored)[^:]*: ?(.*)", re.S)
_KILLED = re.compile(r"^Container (\S+) failed (liveness|startup) probe")
_FIELDS = {"readiness": "readinessProbe", "liveness": "livenessProbe", "startup": "startupProbe"}


async def killed(
    diagnosis: Diagnosis, pod: core_v1.Pod, container: core_v1.Container, often: str, change: Reference
) -> Cause | None:
    """Return the cause if the kubelet ended a container because of a probe or a hook that failed."""
    for event in reversed(await diagnosis.reader.events(pod)):
        message = event.message or ""
        found = _KILLED.match(message) if event.reason == "Killing" else None
        if found is not None and found[1] == container.name:
            kind = found[2]
            failure = await _last_failure(diagnosis, pod, kind)
            text = f"container {container.name} is restarted because its {kind} probe fails{often}"
            return _cause(text, failure, pod, container, kind, change)
        field = event.involved_object.field_path or "" if event.involved_object is not None else ""
        if event.reason == "FailedPostStartHook" and f"{{{container.name}}}" in field:
            text = f"container {container.name} is restarted because its postStart hook fails{often}: {message}"
            return Cause(text, commands.edit(change), reference(pod))
    return None


async def unready(diagnosis: Diagnosis, pod: core_v1.Pod) -> Sequence[Cause]:
    """Return why a pod whose containers run is not Ready."""
    sidecars = [each for each in pod.spec.init_containers if each.restart_policy == "Always"]
    specs = {each.name: each for each in (*sidecars, *pod.spec.containers)}
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        container = specs.get(status.name)
        running = status.state is not None and status.state.running is not None
        if container is None or status.ready or not running:
            continue
        change = await template_owner(diagnosis.reader, pod)
        if container.startup_probe is not None and not status.started:
            failure = await _last_failure(diagnosis, pod, "startup")
            text = f"container {container.name} has not started: its startup probe has not succeeded yet"
            if not failure:
                return [Cause(text, about=reference(pod), waits=True)]
            return [_cause(text, failure, pod, container, "startup", change)]
        if container.readiness_probe is not None:
            failure = await _last_failure(diagnosis, pod, "readiness")
            if not failure and _is_new(status, container.readiness_probe, diagnosis.reader.now):
                text = f"the readiness probe of container {container.name} has not succeeded yet"
                return [Cause(text, about=reference(pod), waits=True)]
            text = f"the readiness probe of container {container.name} fails"
            return [_cause(text, failure, pod, container, "readiness", change)]
    return _gates(pod)


def _is_new(status: core_v1.ContainerStatus, probe: core_v1.Probe, now: datetime) -> bool:
    """Return whether a container has not run for long enough for a probe to have failed."""
    running = status.state.running if status.state is not None else None
    started = parsed(running.started_at) if running is not None else None
    period = probe.period_seconds or 10
    seconds = (
        (probe.initial_delay_seconds or 0) + (probe.timeout_seconds or 1) + period * (probe.failure_threshold or 3)
    )
    return started is not None and (now - started).total_seconds() < seconds


def _gates(pod: core_v1.Pod) -> Sequence[Cause]:
    conditions = {each.type: each.status for each in pod.status.conditions}
    for gate in pod.spec.readiness_gates:
        if conditions.get(gate.condition_type) != "True":
            text = f"the condition {gate.condition_type} of its readiness gate is not True: the program that sets it has to"
            return [Cause(text, commands.kubectl("get", reference(pod), "-o", "yaml"), reference(pod))]
    return ()


async def _last_failure(diagnosis: Diagnosis, pod: core_v1.Pod, kind: str) -> str:
    """Return what a probe of a kind (readiness, liveness, startup) last failed with; "" if nothing is known."""
    for event in reversed(await diagnosis.reader.events(pod)):
        found = _FAILED.match(event.message or "") if event.reason in ("Unhealthy", "ProbeWarning") else None
        if found is not None and found[1].lower() == kind:
            return found[2].strip() or "it failed without a message"
    return ""


def _cause(
    text: str, failure: str, pod: core_v1.Pod, container: core_v1.Container, kind: str, change: Reference
) -> Cause:
    """Return the cause for a probe that fails, with a command that corrects its port if it asks one that is not declared."""
    probe = _probe(container, kind)
    text = f"{text}: {failure or target(probe)}"
    port, ports = _port(probe), [each.container_port for each in container.ports]
    if port is None or not ports or port in {*ports, *(each.name for each in container.ports)}:
        return Cause(text, commands.edit(change), reference(pod))
    text += f" (it asks port {port}; the container declares {', '.join(map(str, ports))})"
    action = "httpGet" if probe and probe.http_get else "tcpSocket" if probe and probe.tcp_socket else "grpc"
    fields = {_FIELDS[kind]: {action: {"port": ports[0]}}}
    return Cause(text, commands.patch_container(change, container.name, fields), reference(pod))


def _probe(container: core_v1.Container, kind: str) -> core_v1.Probe | None:
    probes = {
        "readiness": container.readiness_probe,
        "liveness": container.liveness_probe,
        "startup": container.startup_probe,
    }
    return probes[kind]


def target(probe: core_v1.Probe | None) -> str:
    """Return what a probe asks."""
    if probe is None:
        return "no probe"
    if probe.http_get is not None:
        return f"GET {probe.http_get.path or '/'} on port {probe.http_get.port}"
    if probe.tcp_socket is not None:
        return f"a connection to port {probe.tcp_socket.port}"
    if probe.grpc is not None:
        return f"gRPC health check on port {probe.grpc.port}"
    return f"the command {' '.join(probe.exec.command)}" if probe.exec is not None else "nothing"


def _port(probe: core_v1.Probe | None) -> str | int | None:
    if probe is None:
        return None
    if probe.grpc is not None:
        return probe.grpc.port
    action = probe.http_get or probe.tcp_socket
    return action.port if action is not None else None
