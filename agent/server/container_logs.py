"""/containerLogs: streams a container's log for `kubectl logs` (log_files.py).

An error can be reported only before the first byte, so the first chunk is read before the response begins.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse

from agent.interfaces import Pods
from agent.server import log_files, log_request
from agent.server.protocol import be_patient
from cri.errors import CRIError
from cri.messages import ContainerState
from cri.runtime_service import RuntimeService
from kube.clock import Clock
from kube.serialize import readable
from kube.serving.frames import SessionTurns


class ContainerLogs:
    """The logs of this node's containers, below `logs_dir`."""

    def __init__(self, pods: Pods, runtime: RuntimeService, logs_dir: Path, clock: Clock) -> None:
        self._pods, self._runtime, self._logs_dir, self._clock = pods, runtime, logs_dir, clock
        self._turns = SessionTurns()

    async def read(self, request: Request) -> Response:
        """Answer with a container's log as far as it is asked for; what is followed ends with the container."""
        be_patient(request.scope)
        path = request.path_params
        try:
            options = log_request.options(request.query_params, self._clock.now())
            view = self._pods.view(path["namespace"], path["pod"])
            record = log_request.instance(view, path["pod"], path["container"], options.previous)
        except log_request.LogRequestError as error:
            return PlainTextResponse(str(error), error.status)

        async def running() -> bool:
            try:
                status = await self._runtime.container_status(record.id)
            except CRIError:
                return False
            return bool(status.state == ContainerState.CONTAINER_RUNNING)

        pieces = log_files.read(self._logs_dir, Path(record.log_path), options, running, self._turns)
        return await _streamed(pieces)


async def _streamed(pieces: AsyncGenerator[bytes, None]) -> Response:
    """Answer with what an iterator yields; what fails before the first piece is still an error response."""
    try:
        first = await anext(pieces, None)
    except (OSError, ValueError) as error:
        return PlainTextResponse(readable(f"failed to open log file: {error}"), 500)
    if first is None:
        return PlainTextResponse("")

    async def all_pieces() -> AsyncIterator[bytes]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return StreamingResponse(all_pieces(), media_type="text/plain")
