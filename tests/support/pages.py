"""Pages of docs/tasks/ as tests: runs each command of a page and compares its output.

A page has three kinds of blocks. ```yaml NAME.yaml is a file that is written beside. Each line of an indented block is a
command. ```console holds commands after `$ ` and what they print: spaces count as one, `...` stands for any text, and a line of
`...` alone for any lines; a command without output may print what it likes. A command that ends in a backslash goes on in the
next line. All of a page goes through one shell, so that its variables last. What only looks (kubectl get, logs, top ...) is
looked at until it shows what the page shows. curl too, because answers change a moment after the objects, but it must get one
each time: a page that has to wait for it says so (--retry). Everything else is done once and must succeed, but for what the
page shows as an error.
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.cluster import eventually
from tests.support.host import Host

_BLOCK = re.compile(r"^```(\w+)(?: +(\S+))?\n(.*?)^```$|(?<=^\n)((?:^    [^\n]*\n)+)", re.M | re.S)
LOOKS = re.compile(r"^(kubectl (?:-n \S+ )?(get|logs|top|describe|auth|rollout history)\b|curl )")
_REQUESTS = re.compile(r"^curl ")
_REFUSED = ("Error from server", "error:", "The ")
_END = "--end of the command--"


@dataclass
class Step:
    """A command and the lines that it is to print; `refused` where they are an error's."""

    command: str
    shows: list[str] = field(default_factory=list)

    @property
    def refused(self) -> bool:
        return bool(self.shows) and self.shows[0].startswith(_REFUSED)

    def agrees(self, printed: str) -> bool:
        """Return whether what was printed is what the page shows."""
        if not self.shows:
            return True
        wanted = r"\n".join(_pattern(_DIFFERS.sub("", line)) for line in self.shows)
        # A line of dots may stand for no line at all.
        wanted = wanted.replace(_ANY + r"\n", f"(?:{_ANY}\n)?").replace(r"\n" + _ANY, f"(?:\n{_ANY})?")
        lines = (" ".join(line.split()) for line in _DIFFERS.sub("", printed).strip().splitlines())
        return re.fullmatch(wanted, "\n".join(lines)) is not None


_ANY = r"[\s\S]*"
# What kubectl began to say since 1.33: the namespace of what it deleted, and that an undone rollout was applied once.
_DIFFERS = re.compile(r"(?<= deleted) from \S+ namespace$|^Warning: resource \S+ was previously managed .*\n", re.M)


def _pattern(line: str) -> str:
    if line.strip() == "...":
        return _ANY
    # Spaces beside dots go with them: what dots stand for may be empty.
    return r"[^\n]*".join(re.escape(" ".join(part.split())) for part in re.split(r"\s*(?<!\.)\.\.\.\s*", line))


def parse(text: str) -> Iterator[Step | tuple[str, str]]:
    """Yield a page's steps, and its files as (name, content), in their order."""
    for kind, name, body, indented in _BLOCK.findall(text):
        if kind == "yaml" and name:
            yield name, body
        if kind != "console" and not indented:
            continue
        body = body or re.sub(r"^    (?=\S)", "$ ", re.sub(r"^ *#.*\n", "", indented, flags=re.M), flags=re.M)
        step: Step | None = None
        for line in body.splitlines():
            if step is not None and step.command.endswith("\\"):
                step.command = step.command[:-1].rstrip() + " " + line.strip()
            elif line.startswith("$ "):
                if step is not None:
                    yield step
                step = Step(line[2:])
            elif step is not None:
                step.shows.append(line)
        if step is not None:
            yield step


class Failed(Exception):
    """A command failed that is not repeated."""


class Shell:
    """A bash of its own on a machine."""

    def __init__(self, host: Host, folder: Path, **environment: str) -> None:
        settings = [f"{key}={value}" for key, value in environment.items()]
        self._process = subprocess.Popen(
            [*host.enter, "env", "-C", str(folder), *settings, "bash", "--norc"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, command: str, seconds: float = 120) -> tuple[int, str]:
        """Run a command; return its status and everything it printed."""
        reader, writer = self._process.stdout, self._process.stdin
        assert reader is not None and writer is not None
        writer.write(f"{{ {command}\n}} </dev/null\nstatus=$?; echo; echo '{_END}' $status\n")
        writer.flush()
        late = threading.Timer(seconds, self._process.kill)
        late.start()
        printed: list[str] = []
        try:
            for line in reader:
                if line.startswith(_END):
                    return int(line.split()[-1]), "".join(printed).rstrip("\n")
                printed.append(line)
        finally:
            late.cancel()
        raise AssertionError(f"{command}: not done within {seconds:g} s\n{''.join(printed)}")

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def walk(page: Path, shell: Shell, folder: Path) -> int:
    """Do what a page says; return how many commands that were."""
    done = 0
    for step in parse(page.read_text()):
        if isinstance(step, tuple):
            (folder / step[0]).write_text(step[1])
            continue
        done += 1
        take(step, shell)
    return done


def take(step: Step, shell: Shell, *, slowly: bool = False) -> None:
    """Run a command of a page, again while it only looks, until it prints what the page shows.

    `slowly`: the reader types by hand, so that a request may fail for the moments until a Service is known on the node.
    """

    def shown() -> bool:
        status, printed = shell.run(step.command)
        shows = "\n".join(step.shows)
        ended = f"$ {step.command}\nended with {status}:\n{printed}"
        if status and _REQUESTS.match(step.command) and not slowly:
            raise Failed(ended)
        assert (status != 0) == step.refused, ended
        assert step.agrees(printed), f"$ {step.command}\nprinted:\n{printed}\nand the page shows:\n{shows}"
        return True

    if LOOKS.match(step.command):
        eventually(shown, step.command, 60, 0.3)
    else:
        shown()
