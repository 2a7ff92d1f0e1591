"""Commands of a fake container: a few words of shell, enough for tests to specify a container's behaviour.

Statements are separated by `;` or `&&`: `echo WORDS [>&2]`, `sleep SECONDS`, `exit CODE`, `true`, `false`,
`cat` (waits for ever), `trap 'exit CODE' TERM`. The same text runs in a real shell, so one test body serves
the fake and a real runtime. As process 1 of a PID namespace, a shell without a trap is deaf to TERM; in a
PID namespace that the pod shares, it dies of it.
"""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

Write = Callable[[str, bytes], None]  # stream name, bytes with their newline
Sleep = Callable[[float], Awaitable[None]]


class UnknownCommandError(Exception):
    """The image has no such program: starting fails, as execve would."""


@dataclass(slots=True)
class Script:
    """One running command; `on_term` is the exit code its TERM trap gives, None while it has no trap."""

    statements: list[list[str]]
    on_term: int | None = None
    terminated: asyncio.Event = field(default_factory=asyncio.Event)

    @classmethod
    def parse(cls, command: Sequence[str]) -> "Script":
        """Read `sh -c TEXT` or a single command. Raise UnknownCommandError."""
        words = list(command)
        if words and words[0].rpartition("/")[2] == "busybox":
            words = words[1:]
        if words[:1] and words[0].rpartition("/")[2] == "sh":
            text = words[2] if words[1:2] == ["-c"] else "cat"
            statements = [shlex.split(part) for part in _split(text)]
        else:
            statements = [words]
        for statement in statements:
            if statement and statement[0].rpartition("/")[2] not in _KNOWN:
                raise UnknownCommandError(statement[0])
        return cls([statement for statement in statements if statement])

    async def run(self, write: Write, sleep: Sleep) -> int:
        """Run to the end; return the exit code."""
        code = 0
        for statement in self.statements:
            name, arguments = statement[0].rpartition("/")[2], statement[1:]
            if name == "exit":
                return int(arguments[0]) if arguments else code
            if name == "trap":
                self.on_term = int(arguments[0].split()[1]) if " " in arguments[0] else 0
            elif name == "echo":
                stream = "stderr" if ">&2" in arguments else "stdout"
                write(stream, " ".join(word for word in arguments if word != ">&2").encode() + b"\n")
                code = 0
            elif name == "sleep":
                if await self._interrupted(sleep(float(arguments[0]))):
                    return self.on_term or 0
                code = 0
            elif name == "cat":
                await self.terminated.wait()
                return self.on_term or 0
            else:
                code = 0 if name == "true" else 1
        return code

    def terminate(self, *, first_process: bool) -> None:
        """Deliver TERM; the first process of a PID namespace without a trap does not notice."""
        if self.on_term is None:
            if first_process:
                return
            self.on_term = 143
        self.terminated.set()

    async def _interrupted(self, waiting: Awaitable[None]) -> bool:
        sleeping = asyncio.ensure_future(waiting)
        signalled = asyncio.ensure_future(self.terminated.wait())
        try:
            await asyncio.wait({sleeping, signalled}, return_when=asyncio.FIRST_COMPLETED)
            return signalled.done()
        finally:
            sleeping.cancel()
            signalled.cancel()


_KNOWN = {"echo", "sleep", "exit", "true", "false", "cat", "trap"}


def _split(text: str) -> list[str]:
    """Cut at ; and && outside of quotes."""
    return [part.strip() for part in re.split(r"(?:;|&&)(?=(?:[^']*'[^']*')*[^']*$)", text)]
