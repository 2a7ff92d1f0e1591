"""Files with variables that a container reads at its start (fileKeyRef, KEP-3721): a strict subset of shell syntax. Pure.

A variable is NAME='value': no blanks around "=", the value in single quotes, as it is and over several lines, then at most a
comment. The file is read up to the variable that is wanted, so what is wrong behind it does not matter (upstream:
pkg/kubelet/util/env). Variables that no container wants are not kept: a file may have 100 000 of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

import msgspec

LONGEST_LINE = 64 * 1024
"""Bytes of a line that upstream reads."""
_BLANKS = " \t"


class EnvFile(msgspec.Struct, frozen=True):
    """The wanted variables of a file, up to its first error."""

    path: str
    """The path on the host, for messages."""
    values: dict[str, str]
    error: str = ""


class _FormatError(Exception):
    pass


def parse(path: str, text: str, wanted: Collection[str]) -> EnvFile:
    """Read a file up to the last of the wanted variables; of a variable that is set twice the first one counts."""
    values: dict[str, str] = {}
    missing = set(wanted)
    try:
        for name, value in _assignments(text):
            if name in missing:
                values[name] = value
                missing.discard(name)
                if not missing:
                    break
    except _FormatError as error:
        return EnvFile(path, values, str(error))
    return EnvFile(path, values)


def _assignments(text: str) -> Iterator[tuple[str, str]]:
    lines = enumerate(_lines(text), 1)
    for number, line in lines:
        stripped = line.lstrip(_BLANKS)
        if not stripped or stripped.startswith("#"):
            continue
        name, equals, rest = stripped.partition("=")
        if not equals:
            raise _error(number, "missing '='")
        if not name.rstrip(_BLANKS):
            raise _error(number, "empty variable name")
        if name != name.rstrip(_BLANKS):
            raise _error(number, "whitespace before '=' is not allowed")
        if rest != rest.lstrip(_BLANKS):
            yield name, ""
            continue
        if not rest.startswith("'"):
            raise _error(number, "value must be enclosed in single quotes")
        value, after, last = _quoted(lines, number, rest[1:])
        after = after.lstrip(_BLANKS)
        if after and not after.startswith("#"):
            raise _error(last, "unexpected content after closing quote")
        yield name, value


def _quoted(lines: Iterator[tuple[int, str]], number: int, rest: str) -> tuple[str, str, int]:
    """Return a value up to its closing quote, what follows the quote, and that line's number."""
    parts, first = [], number
    while "'" not in rest:
        parts.append(rest)
        number, rest = next(lines, (0, ""))
        if not number:
            raise _FormatError(f"invalid environment variable format starting at line {first}: unclosed single quote")
    last, _, after = rest.partition("'")
    return "\n".join([*parts, last]), after, number


def _lines(text: str) -> Iterator[str]:
    """Yield the lines as Go's Scanner does: none after a final newline, without a carriage return at the end."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        if end < 0:
            end = len(text)
        if end - start >= LONGEST_LINE:
            raise _FormatError("error reading environment variable file: bufio.Scanner: token too long")
        yield text[start:end].removesuffix("\r")
        start = end + 1


def _error(number: int, what: str) -> _FormatError:
    return _FormatError(f"invalid environment variable format at line {number}: {what}")
