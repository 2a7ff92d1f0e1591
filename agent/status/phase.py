"""A pod's phase, from its containers' states. Pure.

The rules are upstream's (pkg/kubelet/kubelet_pods.go, getPhase). Beside the containers' states it depends on whether one that
ended is going to be restarted, and whether the pod itself has ended.
"""

from __future__ import annotations

from agent.lifecycle import initialized, is_sidecar, restarts_after
from agent.runtime_records import PodRuntime
from kube.api import core_v1

ENDED_PHASES = ("Succeeded", "Failed")


def phase(pod: core_v1.Pod, status: core_v1.PodStatus, runtime: PodRuntime, *, finished: bool) -> str:
    """Sum the containers up: Pending, Running, Succeeded or Failed."""
    pending_init, failed_init = initialisation(pod, status)
    if failed_init:
        return "Failed"
    if pending_init and not initialized(pod, runtime) and not finished:
        return "Pending"
    waiting = running = stopped = succeeded = restarting = 0
    for container, shown in zip(pod.spec.containers, status.container_statuses, strict=True):
        state, last = shown.state or core_v1.ContainerState(), shown.last_state or core_v1.ContainerState()
        if state.running is not None:
            running += 1
        elif (ended := state.terminated or last.terminated) is not None:
            stopped += 1
            succeeded += state.terminated is not None and ended.exit_code == 0
            restarting += restarts_after(pod, container, ended.exit_code)
        else:
            waiting += 1
    if waiting and not (finished and not running):
        return "Pending"
    if running:
        return "Running"
    if finished:
        # What was never started counts as not succeeded.
        return "Succeeded" if stopped and stopped == succeeded and not waiting else "Failed"
    if restarting:
        return "Running"
    return "Succeeded" if stopped == succeeded else "Failed"


def initialisation(pod: core_v1.Pod, status: core_v1.PodStatus) -> tuple[bool, bool]:
    """Return whether init containers are still to run, and whether one failed for good."""
    pending = False
    for container, shown in zip(pod.spec.init_containers, status.init_container_statuses, strict=True):
        state, last = shown.state or core_v1.ContainerState(), shown.last_state or core_v1.ContainerState()
        if is_sidecar(container):
            pending |= not shown.started and last.terminated is None
            continue
        ended = state.terminated or (last.terminated if state.waiting is not None else None)
        if ended is None:
            pending = True
        elif ended.exit_code != 0:
            if not restarts_after(pod, container, ended.exit_code):
                return pending, True
            pending = True
    return pending, False
