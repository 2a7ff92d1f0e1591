"""Container events from whatever the runtime offers, in one shape.

containerd 1.7 and later speak CRI's GetContainerEvents. Earlier ones (Debian 12 has 1.6) do not, but their
own event service is on the same socket and reports every exit just as fast. Both say "look at this
container now"; neither is a history, so SUBSCRIBED comes first, once the stream stands: the caller lists then, and
has missed nothing. Neither server says that it stands, so it is taken to after 50 ms without an error.

containerd's own events run ahead of its CRI state by some milliseconds: the exit is published, then the
CRI part hears of it, reaps the task and writes the state down. STOPPED is held back here until CRI itself
reports the exit, so that whoever reads the status on hearing it reads the final one.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from cri import errors
from cri.channel import Channel
from cri.messages import ContainerEventType, ContainerState, PodSandboxState, api, containerd_events
from cri.runtime_service import RuntimeService

M = TypeVar("M")

# CRI containers and sandboxes live in this containerd namespace.
_NAMESPACE = "k8s.io"


class Kind(Enum):
    """Type of an event of a container (or of a sandbox's pause container); SUBSCRIBED: all later events follow."""

    SUBSCRIBED = "subscribed"
    CREATED = "created"
    STARTED = "started"
    STOPPED = "stopped"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class ContainerEvent:
    """Something happened to a container; `container_id` is the sandbox's ID for its pause container."""

    kind: Kind
    container_id: str = ""
    sandbox_id: str = ""  # only if the runtime reports it


_CRI_KINDS = {
    ContainerEventType.CONTAINER_CREATED_EVENT: Kind.CREATED,
    ContainerEventType.CONTAINER_STARTED_EVENT: Kind.STARTED,
    ContainerEventType.CONTAINER_STOPPED_EVENT: Kind.STOPPED,
    ContainerEventType.CONTAINER_DELETED_EVENT: Kind.DELETED,
}

_SUBSCRIBE = containerd_events.SubscribeRequest(
    filters=[f'namespace=={_NAMESPACE},topic=="/tasks/{topic}"' for topic in ("create", "start", "delete")]
    + [f'namespace=={_NAMESPACE},topic=="/containers/delete"']
)

_CONTAINERD_KINDS = {
    "/tasks/create": Kind.CREATED,
    "/tasks/start": Kind.STARTED,
    "/tasks/delete": Kind.STOPPED,
    "/containers/delete": Kind.DELETED,
}

_STANDING_SECONDS = 0.05

_SETTLE_SECONDS = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256)


async def container_events(
    channel: Channel, runtime: RuntimeService, *, settled: bool = True
) -> AsyncIterator[ContainerEvent]:
    """Yield events until the connection breaks; then raise UnavailableError, for the caller to subscribe again.

    Without `settled`, STOPPED is passed on at once, for a caller who looks until CRI says the same: holding back
    costs calls, also for those exits that the caller itself brought about and waits for elsewhere.

    Raise UnimplementedError if the runtime has neither kind of event stream: the caller is left with listing.
    """
    path = "/runtime.v1.RuntimeService/GetContainerEvents"
    try:
        stream = channel.stream(path, api.GetEventsRequest(), api.ContainerEventResponse, None)
        async for message in _announced(stream):
            if message is None:
                yield ContainerEvent(Kind.SUBSCRIBED)
                continue
            kind = _CRI_KINDS.get(message.container_event_type)
            if kind is not None:
                yield ContainerEvent(kind, message.container_id, message.pod_sandbox_status.id)
        raise errors.UnavailableError("the runtime closed the event stream", code="UNAVAILABLE")
    except errors.UnimplementedError:
        pass
    async for event in _containerd_events(channel):
        if settled and event.kind is Kind.STOPPED:
            await _settled(runtime, event.container_id)
        yield event


async def _containerd_events(channel: Channel) -> AsyncIterator[ContainerEvent]:
    path = "/containerd.services.events.v1.Events/Subscribe"
    async for envelope in _announced(channel.stream(path, _SUBSCRIBE, containerd_events.Envelope, None)):
        if envelope is None:
            yield ContainerEvent(Kind.SUBSCRIBED)
            continue
        kind = _CONTAINERD_KINDS.get(envelope.topic)
        if kind is Kind.STOPPED:
            deleted = containerd_events.TaskDelete.FromString(envelope.event.value)
            if deleted.id in ("", deleted.container_id):  # else: a process that was exec'd into the container
                yield ContainerEvent(kind, deleted.container_id)
        elif kind is not None:
            # The ID is the first field of all these events, whatever it is called.
            yield ContainerEvent(kind, containerd_events.TaskEvent.FromString(envelope.event.value).container_id)
    raise errors.UnavailableError("the runtime closed the event stream", code="UNAVAILABLE")


async def _announced(stream: AsyncIterator[M]) -> AsyncIterator[M | None]:
    """Pass a stream on, with None at the point from which on it is taken to stand."""
    first = asyncio.ensure_future(anext(stream, None))
    try:
        await asyncio.wait({first}, timeout=_STANDING_SECONDS)
        if not first.done() or first.exception() is None:
            yield None
        message = await first
        if message is None:
            return
        yield message
        async for message in stream:
            yield message
    finally:
        first.cancel()


async def _settled(runtime: RuntimeService, container_id: str) -> None:
    """Return when CRI no longer calls the container running, or after half a second."""
    for pause in _SETTLE_SECONDS:
        try:
            containers = await runtime.list_containers(container_id=container_id)
            if containers:
                running = containers[0].state == ContainerState.CONTAINER_RUNNING
            else:
                sandboxes = await runtime.list_pod_sandboxes(sandbox_id=container_id)
                running = bool(sandboxes) and sandboxes[0].state == PodSandboxState.SANDBOX_READY
        except errors.CRIError:
            return
        if not running:
            return
        await asyncio.sleep(pause)
