"""Events of an object in order: from its own fields, the journal and its events."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from kube.api import core_v1
from wherry.why import journal
from wherry.why.model import Moment
from wherry.why.owners import controller_of
from wherry.why.reading import Reader, event_time
from wherry.why.times import duration, parsed

MOST_EVENTS, LONGEST = 500, 2048
"""Events about an object, the newest ones, and characters of one: everybody who may create events decides about them."""
MOST_PARENTHESES = 20
"""Parentheses of a text that are tried as the begin of its grounds."""


async def moments(reader: Reader, obj: Any) -> list[Moment]:
    """Return what is known to have happened to an object, the oldest first."""
    known = await journal.about(reader, obj)
    recorded = _texts(known.moments)
    newest = await reader.events(obj)
    if len(newest) > MOST_EVENTS:
        reader.note(f"{len(newest) - MOST_EVENTS} older events about it, which are left out")
    events = [each for each in _events(newest[-MOST_EVENTS:]) if (each.actor, each.text) not in recorded]
    writes = [] if known.whole else _writes(obj)
    return _counted(sorted([*known.moments, *writes, *_states(obj, known.ends), *events], key=_order))


def _texts(moments: Iterable[Moment]) -> set[tuple[str, str]]:
    """Return the actors and texts of the journal, also without the grounds that follow a text in parentheses."""
    found: set[tuple[str, str]] = set()
    for each in moments:
        found.add((each.actor, each.text))
        end = -1
        for _ in range(MOST_PARENTHESES):
            end = each.text.find(" (", end + 1)
            if end < 0:
                break
            found.add((each.actor, each.text[:end]))
    return found


def _order(moment: Moment) -> float:
    """Order moments by time; one whose time has no fraction happened at some point of that second, and comes at its end."""
    return moment.time.timestamp() + (0.999 if not moment.time.microsecond else 0)


def _counted(found: list[Moment]) -> list[Moment]:
    """Join moments that follow each other and say the same: the last one stays, with their number."""
    joined: list[Moment] = []
    for moment in found:
        last = joined[-1] if joined else None
        if last is not None and (last.actor, last.text) == (moment.actor, moment.text):
            joined[-1] = msgspec.structs.replace(moment, count=last.count + moment.count)
        else:
            joined.append(moment)
    return joined


def _writes(obj: Any) -> Iterable[Moment]:
    metadata = obj.metadata
    created = parsed(metadata.creation_timestamp)
    managers = sorted(
        ((parsed(entry.time), entry) for entry in metadata.managed_fields if parsed(entry.time) is not None),
        key=lambda pair: str(pair[0]),
    )
    if created is not None:
        first = next(
            (
                entry.manager or ""
                for time, entry in managers
                if time is not None and (time - created).total_seconds() < 1
            ),
            "",
        )
        owner = controller_of(obj)
        above = f", for {owner.kind.lower()}/{owner.name}" if owner is not None else ""
        yield Moment(created, f"created{above}", first)
    for time, entry in managers:
        if time is None or (created is not None and (time - created).total_seconds() < 1):
            continue
        part = f" its {entry.subresource}" if entry.subresource else ""
        yield Moment(time, f"last changed{part or ' it'} ({entry.operation})", entry.manager or "")
    deleted = parsed(metadata.deletion_timestamp)
    if deleted is not None:
        grace = metadata.deletion_grace_period_seconds or 0
        yield Moment(deleted, f"to be gone by then: deleted with a grace period of {duration(grace)}")


def _states(obj: Any, ends: Collection[str] = ()) -> Iterable[Moment]:
    """Yield when conditions changed, and when containers started and ended, but for those whose `ends` are known."""
    status = getattr(obj, "status", None)
    changed: dict[tuple[datetime, str], list[str]] = {}
    for condition in getattr(status, "conditions", None) or ():
        time = parsed(getattr(condition, "last_transition_time", None))
        if time is not None:
            why = f" ({condition.reason})" if getattr(condition, "reason", None) else ""
            changed.setdefault((time, condition.status), []).append(f"{condition.type}{why}")
    for (time, value), names in changed.items():
        yield Moment(time, f"condition{'s' if len(names) > 1 else ''} {', '.join(names)} became {value}")
    if isinstance(status, core_v1.PodStatus):
        for each in (*status.init_container_statuses, *status.container_statuses):
            for state in (each.last_state, each.state):
                yield from _container(each.name, state, ends)


def _container(name: str, state: core_v1.ContainerState | None, ends: Collection[str]) -> Iterable[Moment]:
    if state is None:
        return
    if state.running is not None and (started := parsed(state.running.started_at)) is not None:
        yield Moment(started, f"container {name} started", "kubelet")
    ended = state.terminated
    if ended is not None and (ended.container_id or "").rpartition("/")[2] in ends:
        return
    if ended is not None and (time := parsed(ended.finished_at)) is not None:
        started = parsed(ended.started_at)
        after = f" after {duration((time - started).total_seconds())}" if started is not None else ""
        said = f": {ended.message.strip()}" if ended.message else ""
        yield Moment(
            time, f"container {name} ended{after} with exit code {ended.exit_code} ({ended.reason}){said}", "kubelet"
        )


def _events(events: Sequence[core_v1.Event]) -> Iterable[Moment]:
    for event in events:
        time = parsed(event_time(event))
        if time is None:
            continue
        source = event.source.component if event.source is not None else None
        count = (event.series.count if event.series is not None else None) or event.count or 1
        text = f"{event.reason}: {event.message or ''}"
        yield Moment(
            time,
            text if len(text) <= LONGEST else text[:LONGEST] + "...",
            source or event.reporting_component or "",
            count,
        )
