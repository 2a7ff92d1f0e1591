"""Creates and deletes the pods of a controller, with upstream's events, in growing batches.

Slow start: 1, 2, 4 ... at a time, so that a controller whose pods are rejected (quota, a webhook) sends only a few failing
requests and not thousands. Upstream: RealPodControl and slowStartBatch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from control.controllers.concurrent_requests import for_each
from control.controllers.ownership import controller_reference
from kube import names
from kube.api import core_v1, meta_v1
from kube.client import Client
from kube.errors import StatusError
from kube.events import EventRecorder
from kube.object_names import name_of, namespace_of


def pod_from_template(
    template: core_v1.PodTemplateSpec, owner: Any, *, name: str = "", generate_name: str = ""
) -> core_v1.Pod:
    """Return the pod of a template, controlled by `owner`, in the owner's namespace."""
    metadata = template.metadata
    return core_v1.Pod(
        metadata=meta_v1.ObjectMeta(
            name=name or None,
            generate_name=None if name else generate_name or pods_prefix(name_of(owner)),
            namespace=namespace_of(owner),
            labels=dict(metadata.labels),
            annotations=dict(metadata.annotations),
            finalizers=list(metadata.finalizers),
            owner_references=[controller_reference(owner)],
        ),
        spec=template.spec,
    )


def pods_prefix(owner_name: str) -> str:
    """Return the start of the names of a controller's pods: "web-", or without the dash if that is not a valid name."""
    prefix = f"{owner_name}-"
    return prefix if not names.dns1123_subdomain(f"{owner_name}a") else owner_name


def namespace_terminating(error: StatusError) -> bool:
    """Return whether a creation failed because its namespace is being deleted, which is not reported."""
    return any(cause.get("reason") == "NamespaceTerminating" for cause in error.details.get("causes") or ())


class PodControl:
    """Writes pods on behalf of controllers."""

    def __init__(self, client: Client, recorder: EventRecorder) -> None:
        self._client, self._recorder = client, recorder

    async def create(self, pod: core_v1.Pod, owner: Any) -> core_v1.Pod:
        """Create a pod and emit an event on the owner."""
        try:
            created = await self._client.create(pod)
        except StatusError as error:
            if not namespace_terminating(error):
                self._recorder.event(owner, "Warning", "FailedCreate", f"Error creating: {error}")
            raise
        self._recorder.event(owner, "Normal", "SuccessfulCreate", f"Created pod: {name_of(created)}")
        return created

    async def delete(self, pod: core_v1.Pod, owner: Any) -> None:
        """Delete a pod and emit an event on the owner; NotFound is raised without an event."""
        try:
            await self._client.delete(core_v1.Pod, name_of(pod), namespace_of(pod))
        except StatusError as error:
            if not error.not_found:
                self._recorder.event(owner, "Warning", "FailedDelete", f"Error deleting: {error}")
            raise
        self._recorder.event(owner, "Normal", "SuccessfulDelete", f"Deleted pod: {name_of(pod)}")


async def slow_start(count: int, act: Callable[[int], Awaitable[object]]) -> tuple[int, StatusError | None]:
    """Call `act(0)` ... `act(count - 1)` in doubling batches; return how many were called and the first failure.

    A batch with a failure is the last one.
    """
    done, batch = 0, 1
    while done < count:
        size = min(batch, count - done)
        failure = await for_each(range(done, done + size), act)
        done += size
        if failure is not None:
            return done, failure
        batch *= 2
    return done, None
