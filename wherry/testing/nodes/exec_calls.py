"""A command that a client runs in a simulated container, as handlers see it, and what they return."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO, Protocol, TypeAlias

import msgspec


class OutputFile(Protocol):
    """An output of a handler that runs in a thread; `print(..., file=call.stdout)` works too."""

    def write(self, data: str | bytes, /) -> int:
        """Send text or bytes. Raise BrokenPipeError when the client has left."""
        ...

    def flush(self) -> None:
        """Do nothing: all is sent at once."""
        ...


class OutputStream(Protocol):
    """An output of a coroutine function."""

    async def write(self, data: str | bytes, /) -> None:
        """Send text or bytes. Raise BrokenPipeError when the client has left."""
        ...


class Output(msgspec.Struct, frozen=True):
    """The result of a command."""

    stdout: str | bytes = ""
    stderr: str | bytes = ""
    exit_code: int = 0


Result: TypeAlias = Output | str | bytes | int | None
"""Text or bytes are the output on stdout, a number is the exit code."""


@dataclass(frozen=True, slots=True)
class _Call:
    namespace: str
    pod: str
    container: str
    command: tuple[str, ...]
    """The command and its arguments; of an attached client, those of the container."""
    tty: bool


@dataclass(frozen=True, slots=True)
class Exec(_Call):
    """A call for a function, which runs in a thread and may use the cluster."""

    stdin: BinaryIO
    """A client that speaks an old protocol (the Python client) cannot end it: read lines then."""
    stdout: OutputFile
    stderr: OutputFile


@dataclass(frozen=True, slots=True)
class AsyncExec(_Call):
    """A call for a coroutine function, which runs on the cluster's event loop."""

    stdin: asyncio.StreamReader
    stdout: OutputStream
    stderr: OutputStream


def output_of(result: Result, describe: Callable[[], str]) -> Output:
    """Return the result of a handler as an `Output`. Raise TypeError for what is none."""
    if result is None:
        return Output()
    if isinstance(result, Output):
        return result
    if isinstance(result, int):
        return Output(exit_code=result)
    if isinstance(result, str | bytes):
        return Output(result)
    raise TypeError(f"{describe()} returned {result!r}: it is to return an Output, text, bytes, an exit code or None")
