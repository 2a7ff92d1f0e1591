"""The one way to start an external command: an argv list, its output captured, its failure reproducible."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    returncode: int
    stdout: str
    stderr: str


class CommandError(Exception):
    """A command failed, could not be started or took too long; the message repeats it as one would type it."""

    def __init__(self, argv: Sequence[str], why: str, result: Result | None = None) -> None:
        super().__init__(f"{shlex.join(argv)}: {why}")
        self.argv, self.result = list(argv), result


async def run(
    argv: Sequence[str],
    *,
    input: str | bytes = b"",
    timeout: float | None = 60,
    check: bool = True,
    env: Mapping[str, str] | None = None,
    cwd: str | None = None,
) -> Result:
    """Run a command to its end and return what it printed.

    `timeout` is in seconds (None: none); past it the command's process group is killed. With `check`, an exit status
    other than 0 raises CommandError with the last lines of stderr. `env` adds to this process's environment.
    """
    data = input.encode() if isinstance(input, str) else input
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.PIPE if data else asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **env} if env else None,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise CommandError(argv, error.strerror or str(error)) from error
    try:
        async with asyncio.timeout(timeout):
            out, err = await process.communicate(data or None)
    except BaseException as error:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        if isinstance(error, TimeoutError):
            raise CommandError(argv, f"still running after {timeout:g} s, killed") from error
        raise
    result = Result(process.returncode or 0, out.decode(errors="replace"), err.decode(errors="replace"))
    if check and result.returncode != 0:
        said = (result.stderr or result.stdout).strip()[-2000:]
        raise CommandError(argv, f"exit status {result.returncode}: {said}", result)
    return result
