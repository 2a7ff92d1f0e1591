"""Follows an object: reads it again until nothing is wrong with it, and shows only what is new.

The cause may be in objects of any kind, so that a watch of one of them is not enough. The interval doubles while nothing
changes, and the number of reads is limited: an object that nobody mends does not load the API server for ever.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable

import msgspec

from kube.errors import StatusError
from wherry.errors import WherryError
from wherry.why.model import Cause, Moment, Story
from wherry.why.story import NoSuchObject

FIRST_PAUSE, LONGEST_PAUSE = 2.0, 10.0
"""Seconds between reads: after a change, and at most."""
MOST_READS = 1000
MOST_FAILURES = 30
"""Reads that may fail one after the other, while the API server restarts."""
_DURATION = re.compile(r"[0-9][0-9.]*(?:ms|[smhd])(?![A-Za-z])")

Read = Callable[[], Awaitable[Story]]
Show = Callable[[Story, bool], None]


class Limits(msgspec.Struct, frozen=True):
    """Limits of the reads; pauses in seconds."""

    first_pause: float = FIRST_PAUSE
    longest_pause: float = LONGEST_PAUSE
    reads: int = MOST_READS
    failures: int = MOST_FAILURES


async def follow(read: Read, show: Show, note: Callable[[str], None], limits: Limits | None = None) -> None:
    """Show an object's story, then what is new in it, until it has no cause or does not exist any more.

    `show` gets stories with the moments that are new, without causes if these are as before, and whether it is the last one.
    Raises WherryError if the object never existed, if too many reads fail, or at the limit of reads.
    """
    limits = limits or Limits()
    last: Story | None = None
    pause, failures = limits.first_pause, 0
    for _ in range(limits.reads):
        try:
            story = await read()
        except NoSuchObject:
            if last is None:
                raise
            return note("it does not exist any more")
        except (StatusError, WherryError) as error:
            failures += 1
            if last is None or failures >= limits.failures:
                raise
            if failures == 1:
                note(f"it cannot be read at present: {error}")
        else:
            failures = 0
            changed = _difference(last, story)
            if changed is not None:
                show(changed, all(cause.partial for cause in story.causes))
            if all(cause.partial for cause in story.causes):
                return None
            pause = limits.first_pause if changed is not None else min(2 * pause, limits.longest_pause)
            last = story
        await asyncio.sleep(pause)
    raise WherryError(f"it has been read {limits.reads} times, and is not as it should be yet: run the command again")


def _difference(last: Story | None, story: Story) -> Story | None:
    """Return what a story has that the last one had not; None if that is nothing."""
    if last is None:
        return story
    seen = {_key(moment) for moment in last.moments}
    moments = [moment for moment in story.moments if _key(moment) not in seen]
    same = [_same(cause) for cause in story.causes] == [_same(cause) for cause in last.causes]
    unknown = [text for text in story.unknown if text not in last.unknown]
    if same and not moments:
        return None
    return msgspec.structs.replace(
        story, moments=moments, unknown=unknown, causes=[] if same and story.causes else story.causes
    )


def _key(moment: Moment) -> tuple[object, ...]:
    return moment.time, moment.actor, moment.text, moment.count


def _same(cause: Cause) -> tuple[str, str]:
    """Return what two equal causes have in common: not the durations in their texts, which grow."""
    return _DURATION.sub("", cause.text), cause.fix
