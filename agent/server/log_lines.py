"""Lines of a container's log in CRI's format, and what the options of `kubectl logs` make of them.

A line is `TIME stdout|stderr F|P text`; P means that the text continues in the next line of the same stream (the runtime cuts
at 16 KiB).
"""

from __future__ import annotations

from datetime import datetime

import msgspec


class LogOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of reading a log; `since` in nanoseconds of Unix time, negative numbers mean no limit."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since: int = -1
    tail_lines: int = -1
    limit_bytes: int = -1
    stream: str = "All"


class LogFormatError(ValueError):
    """A line is not in CRI's format."""


class Line(msgspec.Struct, frozen=True):
    """One entry: the time as written, the stream, the text with its newline unless it continues."""

    time: bytes
    stream: bytes
    text: bytes


def parse(raw: bytes) -> Line:
    """Read one line, without or with its newline. Raise LogFormatError."""
    parts = raw.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 3 or parts[1] not in (b"stdout", b"stderr"):
        raise LogFormatError(f"not in the CRI log format: {raw[:200]!r}")
    text = parts[3] if len(parts) == 4 else b""
    # The third column is a list of tags separated by colons; the first is whether the line is complete.
    return Line(parts[0], parts[1], text if parts[2].partition(b":")[0] == b"P" else text + b"\n")


def nanoseconds(time: bytes) -> int:
    """Read an RFC 3339 time with any number of decimals. Raise LogFormatError."""
    text = time.decode("ascii", "replace")
    whole, dot, rest = text.partition(".")
    digits = rest.rstrip("Z") if dot else ""
    zone = "Z" if text.endswith("Z") else ""
    if dot and not zone:
        cut = max(rest.find("+"), rest.find("-"))
        digits, zone = rest[:cut], rest[cut:]
    try:
        moment = datetime.fromisoformat(whole + zone if dot else text)
        return int(moment.timestamp()) * 1_000_000_000 + int((digits or "0").ljust(9, "0")[:9])
    except ValueError as error:
        raise LogFormatError(f"not a time: {text!r}") from error


def fixed_time(time: bytes) -> bytes:
    """Write a time with all nine decimals, as `--timestamps` prints them."""
    head, dot, rest = time.partition(b".")
    zone_at = next((i for i, byte in enumerate(rest) if byte in b"Z+-"), len(rest)) if dot else 0
    if not dot:
        head, zone = (time[:19], time[19:])
        return head + b".000000000" + zone
    return head + b"." + rest[:zone_at].ljust(9, b"0") + rest[zone_at:]


class LogWriter:
    """Turns entries into the bytes to send, counting what was sent against the limit."""

    def __init__(self, options: LogOptions) -> None:
        self._options = options
        self._left = options.limit_bytes
        self._at_line_start = True
        self._since_reached = options.since < 0

    @property
    def full(self) -> bool:
        """Return whether the limit has been reached."""
        return self._options.limit_bytes >= 0 and self._left <= 0

    def write(self, raw: bytes) -> bytes:
        """Return what a raw line contributes; empty when the options leave it out or it is malformed."""
        try:
            line = parse(raw)
            if not self._since_reached:
                if nanoseconds(line.time) < self._options.since:
                    return b""
                self._since_reached = True
        except LogFormatError:
            return b""
        if self._options.stream != "All" and line.stream != self._options.stream.lower().encode():
            return b""
        text = line.text
        if self._options.timestamps and self._at_line_start:
            text = fixed_time(line.time) + b" " + text
        self._at_line_start = line.text.endswith(b"\n")
        if self._options.limit_bytes >= 0:
            text = text[: self._left]
            self._left -= len(text)
        return text
