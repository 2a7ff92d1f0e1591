"""Parses a cron schedule: five fields, or one of the named ones.

The messages are those of the parser that upstream uses (robfig/cron): what it says of a schedule is what the client sees.
"""

from __future__ import annotations

import re

_BOUNDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 6))
_MONTHS = {m: i for i, m in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_DAYS = {d: i for i, d in enumerate("sun mon tue wed thu fri sat".split())}
_NAMED = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_DURATION = re.compile(r"([0-9]+(\.[0-9]*)?(ns|us|µs|ms|s|m|h))+")


_ZONE = re.compile("(CRON_)?TZ=[^ ]* ")
LONGEST = 4096
"""Characters of a schedule that are parsed; upstream has no limit. All minutes, hours, days and months listed have 450."""


def schedule_problem(schedule: str) -> str:
    """Return what is wrong with a schedule, or an empty string."""
    if len(schedule) > LONGEST:
        return f"may not be more than {LONGEST} characters"
    if zoned := _ZONE.match(schedule):
        schedule = schedule[zoned.end() :].strip()
    if schedule.startswith("@"):
        if schedule in _NAMED:
            return ""
        every = schedule.removeprefix("@every ")
        if every != schedule:
            return (
                ""
                if _DURATION.fullmatch(every)
                else f'failed to parse duration {schedule}: time: invalid duration "{every}"'
            )
        return f"unrecognized descriptor: {schedule}"
    fields = schedule.split()
    if len(fields) != len(_BOUNDS):
        shown = " ".join(fields)
        return f"expected exactly 5 fields, found {len(fields)}: [{shown}]"
    for text, (name, low, high) in zip(fields, _BOUNDS, strict=True):
        words = _MONTHS if name == "month" else _DAYS if name == "day of week" else {}
        for part in text.split(","):
            problem = _part_problem(part, low, high, words)
            if problem:
                return problem
    return ""


def _part_problem(part: str, low: int, high: int, words: dict[str, int]) -> str:
    pieces = part.split("/")
    bounds = pieces[0].split("-")
    try:
        if pieces[0] in ("*", "?"):
            start, end = low, high
        else:
            start = _number(bounds[0], words)
            end = start if len(bounds) == 1 else _number(bounds[1], words)
            if len(bounds) > 2:
                return f"too many hyphens: {part}"
        step = 1
        if len(pieces) == 2:
            step = _number(pieces[1], {})
            if len(bounds) == 1:
                end = high
        elif len(pieces) > 2:
            return f"too many slashes: {part}"
    except ValueError as error:
        return str(error)
    if start < low:
        return f"beginning of range ({start}) below minimum ({low}): {part}"
    if end > high:
        return f"end of range ({end}) above maximum ({high}): {part}"
    if start > end:
        return f"beginning of range ({start}) beyond end of range ({end}): {part}"
    return "" if step else f"step of range should be a positive number: {part}"


def _number(text: str, words: dict[str, int]) -> int:
    if text.lower() in words:
        return words[text.lower()]
    if not re.fullmatch("[+-]?[0-9]+", text):
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if len(text.lstrip("+-0")) > 18:
        raise ValueError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": value out of range')
    number = int(text)
    if number < 0:
        raise ValueError(f"negative number ({number}) not allowed: {text}")
    return number
