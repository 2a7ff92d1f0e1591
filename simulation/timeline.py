"""The timeline of a run for readers, with actors, changes and reasons.

A line has the time, the actor (a controller, a node, a user, the faults), what it changed in the store, and the member that
served the request. The reasons are those that production code gives: events, refusals, and conditions among the changes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import msgspec

from control.storage.memory_rows import Row
from simulation.origin import ORIGIN

MOST_LINES = 50_000
MOST_CHANGES = 6
"""Changed fields that a line shows."""
LONGEST_VALUE = 60
HEARTBEATS = ("/registry/leases/", "/registry/masterleases/", "/compaction")
UNSHOWN = frozenset({"managedFields", "lastHeartbeatTime", "resourceVersion"})


class Timeline:
    """Lines of a run, the newest ones if there are too many."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=MOST_LINES)

    def add(self, seconds: float, actor: str, text: str) -> None:
        """Add a line."""
        self.lines.append(f"{seconds:12.3f}  {actor:34}  {text}")

    def written(self, seconds: float, row: Row) -> None:
        """Add a write of the store; heartbeats are left out."""
        text = describe(row)
        if not text:
            return
        origin = ORIGIN.get()
        if origin is None:
            self.add(seconds, "store", text)
            return
        place = f" ({origin.client.name})" if origin.client is not None and origin.client.name != origin.actor else ""
        via = f"   [{origin.method} at {origin.server}]" if origin.method else ""
        self.add(seconds, f"{origin.actor}{place}", text + via)


def describe(row: Row) -> str:
    """Return what a write changes; "" for a heartbeat."""
    key, before = row.item.key, row.before
    if key.startswith(HEARTBEATS) or not key.startswith("/registry/"):
        return ""
    shown = key.removeprefix("/registry/")
    if row.deleted:
        return f"deletes {shown}"
    now: Any = msgspec.json.decode(row.item.value)
    if shown.startswith("events/"):
        about = now.get("involvedObject") or now.get("regarding") or {}
        name = f"{about.get('namespace', '')}/{about.get('name')}"
        return f"event about {about.get('kind')} {name}: {now.get('reason')}: {now.get('message') or now.get('note')}"
    if before is None or before.deleted:
        return f"creates {shown}{_purpose(now)}"
    changes = list(differences(msgspec.json.decode(before.item.value), now))
    if not changes:
        return ""
    more = f" and {len(changes) - MOST_CHANGES} more" if len(changes) > MOST_CHANGES else ""
    return f"changes {shown}: {'; '.join(changes[:MOST_CHANGES])}{more}"


def _purpose(obj: Any) -> str:
    owners = [f"{each['kind']} {each['name']}" for each in (obj.get("metadata") or {}).get("ownerReferences") or ()]
    return f" for {', '.join(owners)}" if owners else ""


def differences(before: Any, after: Any, path: str = "") -> Iterator[str]:
    """Return the fields in which two JSON values differ, with both values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for name in sorted({*before, *after} - UNSHOWN):
            yield from differences(before.get(name), after.get(name), f"{path}.{name}" if path else name)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}[{_label(new, index)}]")
    elif before != after:
        yield f"{path}: {_short(before)} -> {_short(after)}"


def _label(item: Any, index: int) -> str:
    """Return the name of an item of a list, or its number."""
    if isinstance(item, dict):
        for name in ("type", "name"):
            if isinstance(item.get(name), str):
                return str(item[name])
    return str(index)


def _short(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    return text if len(text) <= LONGEST_VALUE else f"{text[:LONGEST_VALUE]}..."
