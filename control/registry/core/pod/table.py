"""The row of a pod in `kubectl get pods`: READY, STATUS and RESTARTS, computed from the containers' states.

STATUS is the phase unless something says more: a scheduling gate, the init container that is at work or has failed, the
reason a container waits or ended, and at last deletion. Follows upstream's pkg/printers/internalversion printPod.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.field_values import field_value
from control.registry.table_cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.tables import age
from kube.json_object import Object

COLUMNS = (
    NAME,
    Column("Ready", description="How many of the pod's containers are ready."),
    Column("Status", description="What the pod's containers do, in a word."),
    Column("Restarts", description="How often containers were restarted, and when last."),
    AGE,
    Column("IP", description="Address of the pod.", priority=1),
    Column("Node", description="Node the pod is bound to.", priority=1),
    Column("Nominated Node", description="Node where lower priority pods make room.", priority=1),
    Column("Readiness Gates", description="Readiness gates that are met.", priority=1),
)


def row(pod: Object, now: datetime) -> list[Any]:
    """Return a pod's cells."""
    spec, status = pod.get("spec") or {}, pod.get("status") or {}
    ready, total, reason, restarts, last = _containers(spec, status)
    if pod.get("metadata", {}).get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    shown = f"{restarts} ({age(last, now)} ago)" if restarts and last else str(restarts)
    ips = status.get("podIPs") or [{"ip": status.get("podIP") or ""}]
    return [
        name_of(pod),
        f"{ready}/{total}",
        reason,
        shown,
        age(created(pod), now),
        ips[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _gates(spec, status),
    ]


def conditions(pod: Object) -> list[Object]:
    """Return the row conditions of a pod that has ended."""
    phase = (pod.get("status") or {}).get("phase")
    if phase == "Succeeded":
        message = "The pod has completed successfully."
    elif phase == "Failed":
        message = "The pod failed."
    else:
        return []
    return [{"type": "Completed", "status": "True", "reason": phase, "message": message}]


def _containers(spec: Object, status: Object) -> tuple[int, int, str, int, str | None]:
    """Return ready and all containers, the STATUS, the restarts and the time of the last one."""
    reason: str = status.get("reason") or status.get("phase") or ""
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    inits = spec.get("initContainers") or []
    sidecars = {c.get("name") for c in inits if c.get("restartPolicy") == "Always"}
    total, ready = len(spec.get("containers") or ()) + len(sidecars), 0
    restarts = sidecar_restarts = 0
    last: str | None = None
    sidecar_last: str | None = None
    initializing = False
    for index, container in enumerate(status.get("initContainerStatuses") or ()):
        state, sidecar = container.get("state") or {}, container.get("name") in sidecars
        restarts += container.get("restartCount", 0)
        last = _later(last, container)
        if sidecar:
            sidecar_restarts += container.get("restartCount", 0)
            sidecar_last = _later(sidecar_last, container)
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated is not None and not terminated.get("exitCode"):
            continue
        if sidecar and container.get("started"):
            ready += bool(container.get("ready"))
            continue
        if terminated is not None:
            reason = "Init:" + (terminated.get("reason") or _exit(terminated))
        elif waiting and waiting.get("reason") not in (None, "", "PodInitializing"):
            reason = "Init:" + waiting["reason"]
        else:
            reason = f"Init:{index}/{len(inits)}"
        initializing = True
        break
    if initializing and not _is_true(status, "Initialized"):
        return ready, total, reason, restarts, last
    restarts, last, running = sidecar_restarts, sidecar_last, False
    for container in reversed(status.get("containerStatuses") or ()):
        state = container.get("state") or {}
        restarts += container.get("restartCount", 0)
        last = _later(last, container)
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated is not None:
            reason = terminated.get("reason") or _exit(terminated)
        elif container.get("ready") and state.get("running") is not None:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if _is_true(status, "Ready") else "NotReady"
    return ready, total, reason, restarts, last


def _exit(terminated: Object) -> str:
    signal = terminated.get("signal")
    return f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"


def _later(last: str | None, container: Object) -> str | None:
    ended: str | None = field_value(container, "lastState.terminated.finishedAt")
    # RFC 3339 in UTC with whole seconds sorts as text.
    return max(last, ended) if last and ended else ended or last


def _is_true(status: Object, kind: str) -> bool:
    return any(c.get("type") == kind and c.get("status") == "True" for c in status.get("conditions") or ())


def _gates(spec: Object, status: Object) -> str:
    gates = spec.get("readinessGates") or []
    if not gates:
        return NONE
    return f"{sum(_is_true(status, g.get('conditionType', '')) for g in gates)}/{len(gates)}"
