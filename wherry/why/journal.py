"""The control plane's journal about an object (kube/journal.py), as moments; upstream's control plane has none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube import resources
from kube.errors import StatusError
from kube.journal import PATH, Entry, Page
from kube.object_names import name_of, namespace_of
from wherry.why.model import Moment
from wherry.why.reading import Reader
from wherry.why.times import parsed

NO_JOURNAL = "decisions without an event or a field: this control plane keeps no journal"


class Known(msgspec.Struct, frozen=True):
    """Moments of the journal about an object; `whole` if it begins before the object."""

    moments: list[Moment]
    whole: bool


async def about(reader: Reader, obj: Any) -> Known:
    """Return the journal's moments about an object; notes for the reader what it does not have."""
    resource = resources.of(type(obj))
    query = {"group": resource.group, "version": resource.version, "resource": resource.plural, "name": name_of(obj)}
    try:
        data = await reader.client.call("GET", PATH, query=query | {"namespace": namespace_of(obj)})
        page = msgspec.json.decode(data, type=Page)
    except StatusError as error:
        absent = error.code == 404 or "cannot get path" in error.message
        reader.note(NO_JOURNAL if absent else f"the journal could not be read: {error}")
        return Known([], whole=False)
    except msgspec.MsgspecError:
        reader.note(NO_JOURNAL)
        return Known([], whole=False)
    created = parsed(obj.metadata.creation_timestamp)
    whole = created is not None and created.timestamp() + 1 >= page.complete_since
    if not whole:
        since = _time(page.complete_since).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        reader.note(f"decisions before {since}, when the journal begins")
    uid = obj.metadata.uid
    entries = [entry for entry in page.entries if entry.uid in ("", uid)]
    return Known([moment for entry in entries for moment in _moments(entry)], whole)


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _moments(entry: Entry) -> Iterable[Moment]:
    time = _time(entry.time)
    revision = f", revision {entry.revision}" if entry.revision else ""
    yield Moment(time, f"{entry.text}{revision}", entry.actor, trace=entry.trace)
    for text in _details(entry.details or {}):
        yield Moment(time, text, entry.actor, trace=entry.trace)


def _details(details: Mapping[str, Any]) -> Iterable[str]:
    """Yield what an entry says of each node, webhook or policy."""
    nodes, counts = details.get("nodes"), details.get("counts")
    if isinstance(nodes, dict) and isinstance(counts, dict):
        for reason, names in nodes.items():
            more = counts.get(reason, 0) - len(names)
            yield f"- {', '.join(names)}{f' and {more} more' if more > 0 else ''}: {reason}"
        return
    for name, value in details.items():
        if name.startswith(("mutation.", "patch.")) or ".admission." in name:
            yield f"- admission: {name.partition('/')[2] or name}: {value}"
