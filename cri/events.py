"""Container events from whatever the runtime offers, in one shape.

containerd 1.7 and later speak CRI's GetContainerEvents. Earlier ones (Debian 12 has 1.6) do not, but their
own event service is on the same socket and tells of every exit just as fast. Both say "look at this
container now"; neither is a history, so after (re)connecting the caller lists once, and lists slowly ever
after, to repair what was missed while nobody listened.
"""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum

from cri import errors
from cri.channel import Channel
from cri.messages import ContainerEventType, api, containerd_events

# CRI containers and sandboxes live in this containerd namespace.
_NAMESPACE = "k8s.io"


class Kind(Enum):
    """What happened to a container (or to a sandbox's pause container)."""

    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """Something happened to a container; `container_id` is the sandbox's ID for its pause container."""

    kind: Kind
    container_id: str
    sandbox_id: str = ""  # only where the runtime tells


_CRI_KINDS = {
    ContainerEventType.CONTAINER_CREATED_EVENT: Kind.CREATED,
    ContainerEventType.CONTAINER_STARTED_EVENT: Kind.STARTED,
    ContainerEventType.CONTAINER_STOPPED_EVENT: Kind.STOPPED,
    ContainerEventType.CONTAINER_DELETED_EVENT: Kind.DELETED,
}

_TASK_KINDS = {
    "/tasks/create": Kind.CREATED,
    "/tasks/start": Kind.STARTED,
    "/tasks/exit": Kind.STOPPED,
    "/tasks/delete": Kind.DELETED,
}


async def container_events(channel: Channel) -> AsyncIterator[ContainerEvent]:
    """Yield events until the connection breaks; then raise UnavailableError, for the caller to subscribe again."""
    path = "/runtime.v1.RuntimeService/GetContainerEvents"
    try:
        async for message in channel.stream(path, api.GetEventsRequest(), api.ContainerEventResponse, None):
            kind = _CRI_KINDS.get(message.container_event_type)
            if kind is not None:
                yield ContainerEvent(kind, message.container_id, message.pod_sandbox_status.id)
        raise errors.UnavailableError("the runtime closed the event stream", code="UNAVAILABLE")
    except errors.UnimplementedError:
        pass
    async for event in _containerd_events(channel):
        yield event


async def _containerd_events(channel: Channel) -> AsyncIterator[ContainerEvent]:
    path = "/containerd.services.events.v1.Events/Subscribe"
    request = containerd_events.SubscribeRequest(filters=[f"namespace=={_NAMESPACE},topic~=/tasks/"])
    async for envelope in channel.stream(path, request, containerd_events.Envelope, None):
        kind = _TASK_KINDS.get(envelope.topic)
        if kind is None:
            continue
        if kind is Kind.STOPPED:
            exited = containerd_events.TaskExit.FromString(envelope.event.value)
            if exited.id != exited.container_id:
                continue  # a process that was exec'd into the container, not the container
            yield ContainerEvent(kind, exited.container_id)
        else:
            yield ContainerEvent(kind, containerd_events.TaskEvent.FromString(envelope.event.value).container_id)
    raise errors.UnavailableError("the runtime closed the event stream", code="UNAVAILABLE")
