"""Calls the handlers of commands: coroutine functions on the event loop, other functions in threads."""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass
from typing import Any

from agent.streaming.remote_command import failure
from wherry.testing.kubelet.command_streams import CommandStreams, exit_status
from wherry.testing.kubelet.pairs import copy, in_thread, stream_of
from wherry.testing.nodes.exec_calls import AsyncExec, Exec, Output, output_of
from wherry.testing.nodes.handlers import ExecHandler, is_coroutine_function

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Command:
    """A command in a container."""

    namespace: str
    pod: str
    container: str
    command: tuple[str, ...]


async def run(handler: ExecHandler, command: Command, streams: CommandStreams) -> bytes:
    """Call a handler, send what it returns, and return the status of the session."""
    try:
        output = output_of(await _called(handler, command, streams), lambda: _name(handler))
    except Exception as error:
        log.exception("the handler %s of %s/%s", _name(handler), command.namespace, command.pod)
        return failure(f"error executing command in container: {type(error).__name__}: {error}")
    await _send(streams, output)
    return exit_status(command.command, output.exit_code)


async def _send(streams: CommandStreams, output: Output) -> None:
    await streams.write("stdout", output.stdout)
    await streams.write("stderr", output.stderr)


async def _called(handler: Any, command: Command, streams: CommandStreams) -> Any:
    ours, theirs = socket.socketpair()
    stdin = await stream_of(ours)
    known = (command.namespace, command.pod, command.container, command.command, streams.tty)
    pump = asyncio.create_task(_feed(streams, stdin.writer), name="stdin of a handler")
    try:
        if is_coroutine_function(handler):
            read = await stream_of(theirs)
            try:
                call = AsyncExec(*known, read.reader, _Stream(streams, "stdout"), _Stream(streams, "stderr"))
                return await handler(call)
            finally:
                read.writer.transport.abort()
        loop = asyncio.get_running_loop()

        def in_its_thread() -> Any:
            with theirs, theirs.makefile("rb") as file:
                return handler(Exec(*known, file, _File(streams, "stdout", loop), _File(streams, "stderr", loop)))

        return await in_thread(in_its_thread, f"handler of {command.pod}")
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        stdin.writer.transport.abort()


async def _feed(streams: CommandStreams, writer: asyncio.StreamWriter) -> None:
    """Pass the client's input on; without one it ends at once."""

    async def nothing() -> bytes:
        return b""

    await copy(nothing if streams.stdin is None else streams.stdin.read, writer)


class _Stream:
    """An output of a coroutine function."""

    def __init__(self, streams: CommandStreams, name: str) -> None:
        self._streams, self._name = streams, name

    async def write(self, data: str | bytes, /) -> None:
        await self._streams.write(self._name, data)


class _File:
    """An output of a function in a thread."""

    def __init__(self, streams: CommandStreams, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._streams, self._name, self._loop = streams, name, loop

    def write(self, data: str | bytes, /) -> int:
        asyncio.run_coroutine_threadsafe(self._streams.write(self._name, data), self._loop).result()
        return len(data)

    def flush(self) -> None:
        pass


def _name(handler: Any) -> str:
    return str(getattr(handler, "__qualname__", handler))
