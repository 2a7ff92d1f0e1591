"""A story as text for people and as data."""

from __future__ import annotations

from typing import Any

from rich.cells import cell_len, chop_cells

from kube.log_lines import escaped
from wherry.why.model import Cause, Moment, Story

FIX, INDENT = "fix: ", "    "
BLANKS = (0x2800, 0x3164, 0x115F, 0x1160, 0xFFA0, 0x1D159)
"""Printable characters that are blank: an empty Braille pattern, fillers of Hangul, a musical symbol without a head."""
IGNORED = (0x034F, 0x17B4, 0x17B5, *range(0x180B, 0x1810), *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0))
"""Printable characters without a picture, most of which choose a variant of the one before."""
NOTHING_WRONG = "nothing is wrong with it as far as the cluster's objects show"


def lines(story: Story) -> list[str]:
    """Return a story as lines: what it is, what happened, and at the end the cause and the next command."""
    where = f" in {story.subject.namespace}" if story.subject.namespace else ""
    found = [_line(f"{story.subject}{where}: {story.state}"), ""]
    found += [_moment(moment) for moment in story.moments]
    if story.moments:
        found.append("")
    return [*(escaped(line) for line in found), *_conclusion(story)]


def later_lines(story: Story, *, ended: bool) -> list[str]:
    """Return the lines of what is new in a story that is followed: moments, and the causes if they have changed."""
    moments = [escaped(_moment(moment)) for moment in story.moments]
    return [*moments, *(_conclusion(story) if story.causes or ended else [])]


def _conclusion(story: Story) -> list[str]:
    """Return the lines at the end: what is not known, the causes, and the next command."""
    found = [f"not known: {_line(text)}" for text in story.unknown]
    *others, last = story.causes or [Cause(NOTHING_WRONG)]
    for cause in others:
        found += [f"also: {_line(cause.text)}", *([f"  {FIX}{_command(cause.fix)}"] if cause.fix else [])]
    found.append(f"cause: {_line(last.text)}" if story.causes else last.text)
    if last.fix:
        found.append(f"{FIX}{_command(last.fix)}")
    elif last.waits:
        found.append(f"{FIX}none is needed, it ends by itself")
    return [escaped(line) for line in found]


def _line(text: str) -> str:
    """Return a text without breaks and rows of blanks, which on a terminal would look like lines of their own."""
    return " ".join(text.translate(dict.fromkeys(BLANKS, " ") | dict.fromkeys(IGNORED)).split())


def _command(text: str) -> str:
    """Return a command in which characters that cannot be seen are escaped."""
    return text.translate({each: f"\\u{each:04x}" for each in (*BLANKS, *IGNORED)})


def broken(line: str, width: int) -> str:
    """Return a line with breaks at a terminal's width, 0 for none; a command stays whole, to be copied.

    What follows a break is indented, so that no part of a text looks like a line of `wherry why`. Long words are broken too.
    """
    if cell_len(line) <= width or width <= 2 * len(INDENT) or line.lstrip().startswith(FIX):
        return line
    rows, indent = [""], line[: len(line) - len(line.lstrip())] + INDENT
    room = width - len(indent)
    for word in line.split(" "):
        for place, part in enumerate(chop_cells(word, room) if cell_len(word) > room else [word]):
            if place or cell_len(f"{rows[-1]} {part}") > width:
                rows.append(indent + part)
            else:
                rows[-1] = f"{rows[-1]} {part}" if rows != [""] else part
    return "\n".join(rows)


def _moment(moment: Moment) -> str:
    time = moment.time.astimezone().strftime("%H:%M:%S")
    often = f" (x{moment.count})" if moment.count > 1 else ""
    actor = f"{moment.actor}: " if moment.actor else ""
    return f"  {time}  {_line(actor)}{' ' if actor else ''}{_line(moment.text)}{often}"


def data(story: Story) -> dict[str, Any]:
    """Return a story as JSON data; the most important cause is the first."""
    return {
        "subject": {"kind": story.subject.kind, "name": story.subject.name, "namespace": story.subject.namespace},
        "state": story.state,
        "moments": [
            {
                "time": each.time.isoformat(),
                "actor": each.actor,
                "text": each.text,
                "count": each.count,
                **({"trace": each.trace} if each.trace else {}),
            }
            for each in story.moments
        ],
        "causes": [
            {
                "text": each.text,
                "fix": each.fix,
                "about": str(each.about or story.subject),
                "waits": each.waits,
                "partial": each.partial,
            }
            for each in reversed(story.causes)
        ],
        "unknown": story.unknown,
    }
