"""Reads objects for a diagnosis: each once, with the caller's rights, and without failing where one of them is missing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from kube import resources
from kube.api import core_v1
from kube.client import Client
from kube.errors import StatusError
from kube.object_names import name_of, namespace_of

T = TypeVar("T", bound=msgspec.Struct)
PAGE = 500
MOST_PAGES = 40
"""Limit of a list: 20 000 objects."""


class Reader:
    """Objects of one cluster at one time, read when they are first asked for.

    An object that does not exist is None, a list that cannot be read is empty; `unknown` says what was not to be read.
    """

    def __init__(self, client: Client, now: datetime) -> None:
        self.client, self.now = client, now
        self.unknown: list[str] = []
        self.unserved: set[type[Any]] = set()
        """Kinds that the server does not have, at least not in this version."""
        self.incomplete: set[type[Any]] = set()
        """Kinds of which some objects could not be listed."""
        self._objects: dict[tuple[type[Any], str, str], Any] = {}
        self._missing: set[tuple[type[Any], str, str]] = set()
        self._lists: dict[tuple[type[Any], str, str, str], list[Any]] = {}

    async def get(self, kind: type[T], name: str, namespace: str = "") -> T | None:
        """Return an object; None if there is none, or if it cannot be read."""
        key = kind, namespace, name
        if key not in self._objects:
            found = None
            try:
                found = await self.client.get(kind, name, namespace)
            except (StatusError, msgspec.ValidationError) as error:
                if isinstance(error, StatusError) and error.not_found and not _unserved(error):
                    self._missing.add(key)
                elif isinstance(error, StatusError) and _unserved(error):
                    self.unserved.add(kind)
                    resource = resources.of(kind)
                    self.note(f"{resource.target}: the server does not have them in version {resource.version}")
                else:
                    where = f" in {namespace}" if namespace else ""
                    self.note(f"{kind.__name__} {name}{where} could not be read: {error}")
            self._objects[key] = found
        read: T | None = self._objects[key]
        return read

    def missing(self, kind: type[Any], name: str, namespace: str = "") -> bool:
        """Return whether an object that was read does not exist: it may also be one that the caller may not read."""
        return (kind, namespace, name) in self._missing

    async def absent(self, kind: type[Any], name: str, namespace: str = "") -> bool:
        """Return whether an object is known not to exist."""
        await self.get(kind, name, namespace)
        return self.missing(kind, name, namespace)

    async def all(
        self, kind: type[T], namespace: str = "", *, label_selector: str = "", field_selector: str = ""
    ) -> Sequence[T]:
        """Return the objects of a kind in a namespace, or in all ("")."""
        key = kind, namespace, label_selector, field_selector
        if key not in self._lists:
            self._lists[key] = await self._listed(kind, namespace, label_selector, field_selector)
        found: Sequence[T] = self._lists[key]
        return found

    async def _listed(self, kind: type[T], namespace: str, labels: str, fields: str) -> list[T]:
        items: list[T] = []
        token = ""
        where = f"in {namespace}" if namespace else "of the cluster"
        plural = resources.of(kind).plural
        try:
            for _ in range(MOST_PAGES):
                page = await self.client.list(
                    kind,
                    namespace,
                    label_selector=labels,
                    field_selector=fields,
                    limit=PAGE,
                    continue_=token,
                    unreadable=lambda metadata, why: self._lacks(
                        kind, f"{plural} {metadata.name} could not be read: {why}"
                    ),
                )
                items += page.items
                token = page.continue_
                if not token:
                    return items
            self._lacks(kind, f"only the first {len(items)} {plural} {where} were read")
        except (StatusError, msgspec.ValidationError) as error:
            self._lacks(kind, f"the {plural} {where} could not be read: {error}")
        return items

    def _lacks(self, kind: type[Any], text: str) -> None:
        self.incomplete.add(kind)
        self.note(text)

    async def events(self, obj: Any) -> list[core_v1.Event]:
        """Return the events about an object, the oldest first."""
        namespace = namespace_of(obj) or "default"
        selector = f"involvedObject.name={name_of(obj)}"
        events = await self.all(core_v1.Event, namespace, field_selector=selector)
        uid, kind = obj.metadata.uid, obj.kind or type(obj).__name__
        about = [
            event
            for event in events
            if event.involved_object is not None
            and event.involved_object.kind == kind
            and event.involved_object.uid in (uid, None, "", name_of(obj))
        ]
        return sorted(about, key=event_time)

    def note(self, text: str) -> None:
        """Note what is not known."""
        if text not in self.unknown:
            self.unknown.append(text)


def _unserved(error: StatusError) -> bool:
    """Return whether a server does not serve a kind at all, at least not in this version: objects of it may exist."""
    return error.code == 404 and not error.details.get("name")


def event_time(event: core_v1.Event) -> str:
    """Return when an event was last seen, as RFC 3339 text."""
    series = event.series.last_observed_time if event.series is not None else None
    return series or event.last_timestamp or event.event_time or event.metadata.creation_timestamp or ""
