"""Validates a `?query=` for the machine's logs and finds them: in the journal, or in a file (KEP-2258).

A name with a slash is a file below the log directory. Other names are services: the journal's lines are shown for those that it
knows, for the others NAME, NAME.log and NAME/NAME.log are tried. Limits and messages are upstream's
(pkg/kubelet/kubelet_server_journal.go).
"""

from __future__ import annotations

import asyncio
import re
import stat
from collections.abc import AsyncIterator, Iterable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from agent.server.log_files import open_beneath
from agent.server.open_file import OpenFile
from agent.symlinks import resolve
from kube.clock import format_time, parse_time
from kube.errors import FieldError, invalid_value, required, too_many
from kube.process import CommandError, pieces, run

MOST_TAIL_LINES, MOST_SERVICES, LONGEST_NAME = 100_000, 4, 256
SECONDS = 30.0
"""Timeout of the journal."""
LONGEST_PATTERN = 1000
"""Characters of a regular expression."""
_UNSAFE = re.compile(r"[^a-zA-Z\-_0-9@]")
_CHUNK = 256 << 10
_OPTIONS = ("sinceTime", "untilTime", "tailLines", "boot", "pattern")


class QueryError(Exception):
    """The query cannot be answered."""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """One query that passed the checks: one file, or services with options."""

    folder: Path
    file: str = ""
    services: tuple[str, ...] = ()
    since: datetime | None = None
    until: datetime | None = None
    tail_lines: int | None = None
    boot: int | None = None
    pattern: str = ""

    @classmethod
    def read(cls, pairs: Iterable[tuple[str, str]], folder: Path) -> LogQuery | None:
        """Read and check the parameters; None if none of them is ours. Raise QueryError with all that is wrong."""
        given = list(pairs)
        queries = [value for name, value in given if name == "query"]
        options = {name: value for name, value in reversed(given) if name in _OPTIONS and value}
        if not options and not any(name == "query" for name, _ in given):
            return None
        files = list(filter(_is_file, queries))
        services = [name for name in queries if not _is_file(name) and name.strip()]
        wrong: list[FieldError] = []
        if any(name == "query" for name, _ in given) and not files and not services:
            wrong.append(invalid_value("query", queries, "query cannot be empty"))
        since, until = (_time(options, name, wrong) for name in ("sinceTime", "untilTime"))
        tail, boot = (_number(options, name, wrong) for name in ("tailLines", "boot"))
        if not wrong:
            found = cls(folder, "", tuple(services), since, until, tail, boot, options.get("pattern", ""))
            wrong = found._checked(files, options=bool(options))
        if wrong:
            raise QueryError(str(wrong[0]) if len(wrong) == 1 else f"[{', '.join(map(str, wrong))}]")
        return cls(folder, files[0]) if files else found

    def _checked(self, files: list[str], *, options: bool) -> list[FieldError]:
        wrong = [_named(name) for name in self.services if len(name) > LONGEST_NAME or _UNSAFE.search(name)]
        if len(self.services) > MOST_SERVICES:
            wrong.append(too_many("query", len(self.services), MOST_SERVICES))
        if not files and not self.services:
            wrong.append(required("query", "cannot be empty with options"))
        elif files and self.services:
            shown = f"[{' '.join(files)}], [{' '.join(self.services)}]"
            wrong.append(invalid_value("query", shown, "cannot specify a file and service"))
        elif len(files) > 1:
            wrong.append(invalid_value("query", files, "cannot specify more than one file"))
        elif files and options:
            wrong.append(invalid_value("query", files, "cannot specify file with options"))
        elif files and not _there(self.folder, files[0]):
            wrong.append(
                invalid_value("query", files, f"stat {self.folder}/{files[0].lstrip('/')}: no such file or directory")
            )
        if self.since is not None and self.until is not None and self.since > self.until:
            wrong.append(invalid_value("untilTime", format_time(self.until), "must be after `sinceTime`"))
        if self.boot is not None and self.boot > 0:
            wrong.append(invalid_value("boot", self.boot, "must be less than 1"))
        if self.tail_lines is not None and not 0 <= self.tail_lines <= MOST_TAIL_LINES:
            wrong.append(
                invalid_value("tailLines", self.tail_lines, f"must be between 0 and {MOST_TAIL_LINES}, inclusive")
            )
        if len(self.pattern) > LONGEST_PATTERN:  # `re` caches what it compiles
            wrong.append(
                invalid_value("pattern", f"{self.pattern[:40]}...", "error parsing regexp: expression too large")
            )
        elif problem := _pattern_problem(self.pattern):
            wrong.append(invalid_value("pattern", self.pattern, f"error parsing regexp: {problem}"))
        return wrong

    async def answer(self) -> AsyncIterator[bytes]:
        """Yield the logs, or the error in their place."""
        if self.file:
            async for piece in _contents(await asyncio.to_thread(_first, self.folder, [self.file])):
                yield piece
            return
        known = await _units()
        native = [name for name in self.services if f"{name}.service" in known]
        others = [name for name in self.services if f"{name}.service" not in known]
        if native:
            try:
                async with aclosing(pieces(["journalctl", *self.arguments(native)], timeout=SECONDS)) as printed:
                    async for piece in printed:
                        yield piece
            except CommandError:
                yield b"\nerror: journal output not available\n"
        if others and self != LogQuery(self.folder, "", self.services):
            names = " ".join(others)
            yield f"\noptions present and query resolved to log files for [{names}]\ntry without specifying options\n".encode()
            return
        for name in others:
            file = await asyncio.to_thread(_first, self.folder, [name, f"{name}.log", f"{name}/{name}.log"])
            if file is None:
                yield f"\nlog not found for {name}\n".encode()
            async for piece in _contents(file):
                yield piece

    def arguments(self, services: Iterable[str]) -> list[str]:
        """Return journalctl's arguments for services."""
        found = ["--utc", "--no-pager", "--output=short-precise"]
        for option, moment in (("since", self.since), ("until", self.until)):
            if moment is not None:
                found.append(f"--{option}={moment:%Y-%m-%d %H:%M:%S}")
        if self.tail_lines is not None:
            found += ["--pager-end", f"--lines={self.tail_lines}"]
        found += [f"--unit={name}" for name in services]
        if self.pattern:
            found.append(f"--grep={self.pattern}")
        if self.boot is not None:
            found += ["--boot", str(self.boot)]
        return found


def _is_file(name: str) -> bool:
    return "/" in name or "\\" in name


def _named(name: str) -> FieldError:
    why = "length must be less than 100" if len(name) > LONGEST_NAME else "input contains unsupported characters"
    return invalid_value("query", name, why)


def _time(options: dict[str, str], name: str, wrong: list[FieldError]) -> datetime | None:
    try:
        return parse_time(options[name]).astimezone(UTC) if name in options else None
    except (ValueError, OverflowError):  # the latter for a time that is before the year 1, or after 9999, in UTC
        wrong.append(invalid_value(name, options[name], "invalid time format"))
        return None


def _number(options: dict[str, str], name: str, wrong: list[FieldError]) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        wrong.append(invalid_value(name, text, f'strconv.Atoi: parsing "{text}": invalid syntax'))
        return None
    return int(text)


async def _units() -> set[str]:
    """Return the units that the journal has something of; none where there is no journal."""
    try:
        return set((await run(["journalctl", "--field", "_SYSTEMD_UNIT"], timeout=SECONDS)).stdout.split())
    except CommandError:
        return set()


def _pattern_problem(pattern: str) -> str:
    """Return why a regular expression cannot be one, "" if it can."""
    if "\0" in pattern:
        return "a NUL, which no argument of a program can contain"
    try:
        re.compile(pattern)
    except RecursionError:
        return "expression nests too deeply"
    except (re.error, OverflowError) as error:  # the latter for numbers of repetitions
        return str(error)
    return ""


def _there(folder: Path, name: str) -> bool:
    return _first(folder, [name]) is not None


def _first(folder: Path, names: Iterable[str]) -> OpenFile | None:
    """Open the first of the files below the folder that is there; a link is followed only where it ends inside."""
    root = resolve(folder)
    for name in names:
        try:
            wanted = resolve(root / name.replace("\\", "/").lstrip("/"))
            file = OpenFile(open_beneath(root, wanted))
        except (OSError, ValueError):
            continue
        if stat.S_ISREG(file.status().st_mode):
            return file
    return None


async def _contents(file: OpenFile | None) -> AsyncIterator[bytes]:
    offset = 0
    while file is not None and (piece := await asyncio.to_thread(file.read, _CHUNK, offset)):
        offset += len(piece)
        yield piece
    if file is not None:
        file.close()
