"""Client of the container runtime: the two CRI services and the event stream.

The image service may have another socket (imageServiceEndpoint); by default both services share one channel. The output of
commands and the statuses of containers have a channel of their own, so that they delay no other calls and wait in the runtime
until it is their turn.
"""

from collections.abc import AsyncIterator
from types import TracebackType

from cri import events
from cri.channel import FIXED_WINDOW, LARGE_LISTS, Channel, Observe, Trace
from cri.containerd_service import ContainerdService
from cri.image_service import ImageService
from cri.runtime_service import RuntimeService


class Client:
    """`runtime` and `images` of one runtime, `containerd` where it is one; an async context manager that closes itself."""

    def __init__(
        self,
        endpoint: str,
        image_endpoint: str = "",
        *,
        request_timeout: float = 120.0,
        observe: Observe | None = None,
        trace: Trace | None = None,
    ) -> None:
        """Prepare to talk to unix:// endpoints; nothing is dialled before the first call. Seconds.

        `observe` is called after every call, `trace` around it.
        """
        self._channel = Channel(endpoint, observe, LARGE_LISTS, trace)
        separate = image_endpoint and image_endpoint != endpoint
        self._image_channel = Channel(image_endpoint, observe, LARGE_LISTS, trace) if separate else self._channel
        self._commands = Channel(endpoint, observe, FIXED_WINDOW, trace)
        self.runtime = RuntimeService(self._channel, request_timeout, self._commands)
        self.images = ImageService(self._image_channel, request_timeout)
        self.containerd = ContainerdService(self._channel)

    def events(self, *, settled: bool = True) -> AsyncIterator[events.ContainerEvent]:
        """Follow container events until the connection breaks. Raise UnavailableError then.

        Without `settled`, an exit is reported at once, some milliseconds before the runtime's own answers show it.
        """
        return events.container_events(self._channel, self.runtime, settled=settled)

    async def ready(self) -> None:
        """Return once the runtime's socket answers; bound it with asyncio.timeout."""
        await self._channel.ready()
        await self._image_channel.ready()

    async def close(self) -> None:
        """Close the connections."""
        await self._channel.close()
        await self._commands.close()
        if self._image_channel is not self._channel:
            await self._image_channel.close()

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
