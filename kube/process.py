"""The one way to start an external command: an argv list, its output captured, its failure reproducible."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass

_PIECE = 128 << 10
END_SECONDS = 10.0
"""Time that a killed command is waited for: one that the kernel holds in a call to a hung disk does not end."""


@dataclass(frozen=True, slots=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """A command failed, could not be started or took too long; the message repeats it as one would type it."""

    def __init__(self, argv: Sequence[str], why: str, result: Result | None = None) -> None:
        super().__init__(f"{shlex.join(argv)}: {why}")
        self.argv, self.why, self.result = list(argv), why, result


async def run(
    argv: Sequence[str],
    *,
    input: str | bytes = b"",
    timeout: float | None = 60,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
    stdout: int = asyncio.subprocess.PIPE,
    stdin: int = asyncio.subprocess.DEVNULL,
) -> Result:
    """Run a command to its end and return what it printed, as far as that is not written to a descriptor `stdout`.

    Its input is `input`, or else the descriptor `stdin`.
    `timeout` is in seconds (None: none); past it the command's process group is killed. With `check`, an exit status
    other than 0 raises CommandError with the last lines of stderr. `env` adds to this process's environment.
    """
    data = input.encode() if isinstance(input, str) else input
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if data else stdin,
            stdout=stdout,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **env} if env else None,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(timeout):
            if data:
                _feed(process, data)
            out, err = await process.communicate()
            if data:
                await _close_input(process)
    except BaseException as error:
        _kill(process)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(argv, f"still running after {timeout:g} s, killed") from error
        raise
    result = Result(process.returncode or 0, (out or b"").decode(errors="replace"), err.decode(errors="replace"))
    if check and result.returncode != 0:
        output = (result.stderr or result.stdout).strip()[-2000:]
        raise CommandError(argv, f"exit status {result.returncode}: {output}", result)
    return result


def _feed(process: asyncio.subprocess.Process, data: bytes) -> None:
    """Write a command's whole input. One that has ended already did not want it: its exit status is the error."""
    assert process.stdin is not None
    try:
        process.stdin.write(data)
        process.stdin.write_eof()
    except OSError:
        pass
    except RuntimeError:  # of uvloop, for a transport that it has closed because the command has ended
        if not process.stdin.is_closing():
            raise


async def _close_input(process: asyncio.subprocess.Process) -> None:
    """Drop what an ended command has not read, and retrieve the error that this is to the event loop."""
    assert process.stdin is not None
    if not process.stdin.is_closing():
        process.stdin.transport.abort()
    with contextlib.suppress(OSError):
        await process.stdin.wait_closed()


async def pieces(argv: Sequence[str], *, timeout: float) -> AsyncGenerator[bytes, None]:
    """Run a command and yield what it prints, errors too, as it comes: no more is kept than a piece of 128 KiB.

    After `timeout` seconds, or when the generator is closed, the command's process group is killed. Raise CommandError if
    it cannot be started or took too long; its exit status is not looked at.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, error.strerror or str(error)) from error
    late = asyncio.get_running_loop().call_later(timeout, _kill, process)
    assert process.stdout is not None
    try:
        while data := await process.stdout.read(_PIECE):
            yield data
        if await process.wait() == -signal.SIGKILL:
            raise CommandError(argv, f"killed, after {timeout:g} s at the latest")
    finally:
        late.cancel()
        if process.returncode is None:
            _kill(process)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_SECONDS):
                    while await process.stdout.read(_PIECE):
                        pass  # a pipe with something in it would keep the process from being waited for
                    await process.wait()


def _kill(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
