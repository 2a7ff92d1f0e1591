"""Deleting a pod before its time: it is marked with the condition DisruptionTarget first, so that its owner knows why."""

from __future__ import annotations

from kube import disruption_target
from kube.api import core_v1
from kube.client import STRATEGIC, Client
from kube.clock import Clock, format_time
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of


async def disrupt(client: Client, clock: Clock, pod: core_v1.Pod, reason: str, message: str) -> None:
    """Mark and delete a pod; one that is gone or another by now is no error."""
    condition = disruption_target.condition(reason, message, format_time(clock.now()), pod.metadata.generation)
    patch = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
    name, namespace = name_of(pod), namespace_of(pod)
    try:
        await client.patch(core_v1.Pod, name, namespace, patch, type=STRATEGIC, subresource="status")
        await client.delete(core_v1.Pod, name, namespace, uid=pod.metadata.uid or "")
    except StatusError as error:
        if not error.not_found and not error.replaced:
            raise
