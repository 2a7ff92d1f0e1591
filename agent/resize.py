"""In-place resize: CPU and memory of running containers brought to what the spec now says (KEP-1287). Pure.

What a container was last given is remembered beside the pod's volumes, because older runtimes do not tell it. A difference is
applied to the running container, or by a restart where its resizePolicy wants one; a resize that the node cannot hold now is
Deferred, one that it never can is Infeasible, and until then the pod keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from agent import qos
from kube.api import core_v1
from kube.quantity import Quantity, milli, value

CHECKPOINT = "resources.json"
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"


@dataclass(frozen=True, slots=True)
class Hold:
    """Why a resize is not carried out: `reason` is Deferred or Infeasible."""

    reason: str
    message: str


def changed(container: core_v1.Container, applied: core_v1.ResourceRequirements) -> set[str]:
    """Return which of cpu and memory differ between the spec and what was applied."""
    wanted = container.resources or core_v1.ResourceRequirements()
    found = set()
    for name, amount in (("cpu", milli), ("memory", value)):
        for new, old in ((wanted.limits, applied.limits), (wanted.requests, applied.requests)):
            if amount(new.get(name, 0)) != amount(old.get(name, 0)):
                found.add(name)
    return found


def needs_restart(container: core_v1.Container, resources: set[str]) -> bool:
    """Tell whether the container asked to be restarted for a change of one of these."""
    return any(p.resource_name in resources and p.restart_policy == "RestartContainer" for p in container.resize_policy)


def hold(pod: core_v1.Pod, others: Iterable[core_v1.Pod], allocatable: Mapping[str, Quantity]) -> Hold | None:
    """Return why the node cannot give the pod what it now asks for; None where it can."""
    others = list(others)
    for name, amount in (("cpu", milli), ("memory", value)):
        if name not in allocatable:
            continue
        requested, capacity = qos.pod_request(pod, name), amount(allocatable[name])
        if requested > capacity:
            message = f"Node didn't have enough capacity: {name}, requested: {requested}, capacity: {capacity}"
            return Hold("Infeasible", message)
        if requested + sum(qos.pod_request(other, name) for other in others) > capacity:
            return Hold("Deferred", f"Node didn't have enough resource: {name}")
    return None


def load(folder: Path) -> dict[str, core_v1.ResourceRequirements]:
    """Read what a pod's containers were given, by container ID; nothing where it was not written or is damaged."""
    try:
        return msgspec.json.decode((folder / CHECKPOINT).read_bytes(), type=dict[str, core_v1.ResourceRequirements])
    except (OSError, msgspec.DecodeError):
        return {}


def save(folder: Path, applied: Mapping[str, core_v1.ResourceRequirements]) -> None:
    """Write what a pod's containers were given, whole or not at all."""
    temporary = folder / f".{CHECKPOINT}"
    temporary.write_bytes(msgspec.json.encode(applied))
    temporary.rename(folder / CHECKPOINT)
