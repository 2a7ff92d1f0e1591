"""A story as text for people and as data."""

from __future__ import annotations

from typing import Any

from kube.log_lines import escaped
from wherry.why.model import Cause, Moment, Story

NOTHING_WRONG = "nothing is wrong with it as far as the cluster's objects show"


def lines(story: Story) -> list[str]:
    """Return a story as lines: what it is, what happened, and at the end the cause and the next command."""
    where = f" in {story.subject.namespace}" if story.subject.namespace else ""
    found = [f"{story.subject}{where}: {story.state}", ""]
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
    found = [f"not known: {text}" for text in story.unknown]
    *others, last = story.causes or [Cause(NOTHING_WRONG)]
    for cause in others:
        found += [f"also: {_line(cause.text)}", *([f"  fix: {cause.fix}"] if cause.fix else [])]
    found.append(f"cause: {_line(last.text)}" if story.causes else last.text)
    if last.fix:
        found.append(f"fix: {last.fix}")
    elif last.waits:
        found.append("fix: none is needed, it ends by itself")
    return [escaped(line) for line in found]


def _line(text: str) -> str:
    """Return a text without breaks and rows of blanks, which on a terminal would look like lines of their own."""
    return " ".join(text.split())


def _moment(moment: Moment) -> str:
    time = moment.time.astimezone().strftime("%H:%M:%S")
    often = f" (x{moment.count})" if moment.count > 1 else ""
    actor = f"{moment.actor}: " if moment.actor else ""
    return f"  {time}  {actor}{' '.join(moment.text.split())}{often}"


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
