"""The control plane's journal about an object (kube/journal.py), as moments; upstream's control plane has none."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from kube import resources
from kube.errors import StatusError
from kube.journal import MIRROR_OF, PATH, Entry, Page
from kube.object_names import name_of, namespace_of
from wherry.why.model import Moment
from wherry.why.reading import Reader
from wherry.why.times import parsed

NO_JOURNAL = "decisions without an event or a field: this control plane keeps no journal"


class Known(msgspec.Struct, frozen=True):
    """Moments of the journal about an object; `whole` if it begins before the object.

    ends: IDs of containers whose end is among the moments.
    """

    moments: list[Moment]
    whole: bool
    ends: frozenset[str] = frozenset()


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
    for text in page.not_known:
        reader.note(text)
    # A kubelet's events about its node have the name for a UID.
    uids = {"", obj.metadata.uid, obj.metadata.annotations.get(MIRROR_OF), name_of(obj)}
    entries = [entry for entry in page.entries if entry.uid in uids]
    known = [(entry, _details(entry)) for entry in entries]
    ends = frozenset(details.container for _, details in known if details.container)
    return Known([moment for entry, details in known for moment in _moments(entry, details)], whole, ends)


class _Details(msgspec.Struct):
    """Data of an entry beyond its text: nodes by reason and their number, fields by plugin, the ID of a container."""

    nodes: dict[str, list[str]] = {}
    counts: dict[str, int] = {}
    changed: dict[str, list[str]] = {}
    container: str = ""


def _time(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _moments(entry: Entry, details: _Details) -> Iterable[Moment]:
    time = _time(entry.time)
    revision = f", revision {entry.revision}" if entry.revision else ""
    yield Moment(time, f"{entry.text}{revision}", entry.actor, trace=entry.trace)
    for text in _lines(details):
        yield Moment(time, text, entry.actor, trace=entry.trace)


def _details(entry: Entry) -> _Details:
    """Return the data of an entry; none if it has another form, such as that of another version's agent."""
    try:
        return msgspec.convert(entry.details or {}, _Details)
    except msgspec.ValidationError:
        return _Details()


def _lines(details: _Details) -> Iterable[str]:
    """Yield what an entry says of each node, plugin, webhook or policy."""
    for reason, names in details.nodes.items():
        more = details.counts.get(reason, 0) - len(names)
        yield f"- {', '.join(names)}{f' and {more} more' if more > 0 else ''}: {reason}"
    for plugin, paths in details.changed.items():
        yield f"- admission: {plugin} set {', '.join(paths)}"
