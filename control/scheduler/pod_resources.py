"""/metrics/resources: requests and limits of all pods that are not finished (upstream: pkg/scheduler/metrics/resources).

One line a pod and resource may be many: lines are built with pauses for others. A scheduler that does not lead has no pods.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from control.scheduler.configuration import DEFAULT_NAME
from control.scheduler.gauges import all_pods
from kube.api import core_v1
from kube.exposition import label_text, number
from kube.pod_requests import Amounts, pod_limits, pod_requests

PODS_AT_ONCE = 50
"""Pods whose lines are built in one step: less than 5 ms."""
_FAMILIES = (
    ("kube_pod_resource_request", "Resources requested by pods, by resource.", pod_requests),
    ("kube_pod_resource_limit", "Limits of pods, by resource.", pod_limits),
)
_BYTES = ("memory", "storage", "ephemeral-storage")


async def text() -> bytes:
    """Return the document."""
    pods = [pod for pod in all_pods() if not (pod.spec.node_name and pod.status.phase in ("Succeeded", "Failed"))]
    lines: list[str] = []
    for name, help_text, amounts in _FAMILIES:
        lines += (f"# HELP {name} {help_text}", f"# TYPE {name} gauge")
        for start in range(0, len(pods), PODS_AT_ONCE):
            for pod in pods[start : start + PODS_AT_ONCE]:
                lines += _lines(name, pod, amounts(pod))
            await asyncio.sleep(0)
    return "".join(f"{line}\n" for line in lines).encode()


def _lines(name: str, pod: core_v1.Pod, amounts: Amounts) -> Iterator[str]:
    priority = pod.spec.priority
    labels = {
        "namespace": pod.metadata.namespace or "",
        "pod": pod.metadata.name or "",
        "node": pod.spec.node_name or "",
        "scheduler": pod.spec.scheduler_name or DEFAULT_NAME,
        "priority": "" if priority is None else str(priority),
    }
    for resource, amount in amounts.items():
        if amount:
            value = amount / 1000 if resource == "cpu" else amount
            yield f"{name}{label_text({**labels, 'resource': resource, 'unit': _unit(resource)})} {number(value)}"


def _unit(resource: str) -> str:
    if resource == "cpu":
        return "cores"
    if resource in _BYTES or resource.startswith("hugepages-"):
        return "bytes"
    return "integer" if resource.startswith("attachable-volumes-") else ""
