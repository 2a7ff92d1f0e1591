"""Conversion between the stored and served versions of custom resources: by renaming (strategy None) or by a webhook.

An object is stored in the version that was the stored one when it was written. Reading it puts in the defaults and drops the
fields of that version's schema as it is now, converts, and drops what the served version does not know. The outcome is kept
with the cache's entry, so that an object pays for this once, and one that needs nothing stays the bytes that the cache holds.
Large objects are converted outside the event loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec

from control.admission.webhooks.caller import CallFailed
from control.custom import conversion_response
from control.custom.conversion_response import REVIEWS, BadConversion
from control.custom.webhooks import Webhooks
from control.event_loop import offload
from control.event_loop.pacing import TimeSlice
from control.event_loop.weight import LARGE, weight
from control.interfaces.acting import ACTING
from control.schemas.schema import Schema, fill, prune
from control.storage import codec
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube.errors import StatusError
from kube.json_object import UNREADABLE, Object
from kube.uid import new_uid

T = TypeVar("T")
TIMEOUT = 30.0
BATCH_BYTES = 256 << 10
"""Weight of the objects of a list that are converted together: a webhook is sent no whole list at once."""


class Versions:
    """All versions of one definition and how its objects get from one to another."""

    def __init__(self, definition: Object, schemas: dict[str, Schema], webhooks: Webhooks) -> None:
        spec = definition["spec"]
        self.group: str = spec["group"]
        self.kind: str = spec["names"]["kind"]
        self.schemas, self._webhooks = schemas, webhooks
        self.storage: str = next(v["name"] for v in spec["versions"] if v.get("storage"))
        conversion = spec.get("conversion") or {}
        named = (conversion.get("webhook") or {}).get("conversionReviewVersions") or ()
        known = [f"apiextensions.k8s.io/{version}" for version in named]
        self._review = next((version for version in known if version in REVIEWS), REVIEWS[0])
        self._webhook: Object | None = conversion.get("webhook") if conversion.get("strategy") == "Webhook" else None

    @property
    def by_webhook(self) -> bool:
        return self._webhook is not None

    def api_version(self, version: str) -> str:
        return f"{self.group}/{version}"

    async def convert(
        self, objects: list[Object], version: str, size: int, finish: Callable[[Object], T], *, reading: bool = False
    ) -> list[T]:
        """Return what `finish` makes of the objects in a version, all of one other version before.

        `size` is their weight: with large ones all is done outside the event loop. Raises 500 if a webhook fails.
        """
        wanted = self.api_version(version)
        if self._webhook is None or not objects:
            return await _run(size, reading, _renamed, objects, wanted, finish)
        source = f"{objects[0]['apiVersion']}, Kind={self.kind}"
        expected = conversion_response.Expected(self._review, new_uid(), self.kind, wanted, source)
        encoded = await _run(size, reading, msgspec.json.encode, objects)
        request = {"uid": expected.uid, "desiredAPIVersion": wanted, "objects": msgspec.Raw(encoded)}
        review = {"kind": "ConversionReview", "apiVersion": self._review, "request": request}
        try:
            answer = await self._webhooks.call(self._webhook.get("clientConfig") or {}, review, TIMEOUT, ACTING.get())
            return await _run(weight(answer), reading, conversion_response.read, answer, expected, objects, finish)
        except (CallFailed, BadConversion, *UNREADABLE) as error:
            raise StatusError(500, "", f"conversion webhook for {source} failed: {_plain(error)}") from error


def _renamed(objects: list[Object], wanted: str, finish: Callable[[Object], T]) -> list[T]:
    return [finish({**obj, "apiVersion": wanted}) for obj in objects]


async def _run(size: int, reading: bool, work: Callable[..., T], *args: Any) -> T:  # noqa: FBT001 - passed on
    """Return what `work` returns: for large objects the thread calls it at the turn of the request's owner."""
    if size < LARGE:
        return work(*args)
    return await (offload.read if reading else offload.apart)(ACTING.get(), work, *args)


class _Batch:
    """Objects of a list in one version, with their indices, that are converted together."""

    def __init__(self) -> None:
        self.indices: list[int] = []
        self.objects: list[Object] = []
        self.size = 0

    def add(self, index: int, obj: Object, size: int) -> None:
        self.indices.append(index)
        self.objects.append(obj)
        self.size += size


class Reader:
    """Reads and writes a definition's objects in one served version."""

    def __init__(self, versions: Versions, served: str) -> None:
        self._versions, self._served = versions, served
        self._wanted = versions.api_version(served)
        self._stored = versions.api_version(versions.storage)

    @property
    def by_webhook(self) -> bool:
        """Return whether versions may differ in more than their name."""
        return self._versions.by_webhook

    def current(self, entry: Entry) -> bool:
        """Return whether an object is stored in the version that new ones are stored in."""
        return bool(entry.parts().get("apiVersion") == self._stored)

    async def read(self, entry: Entry) -> Object:
        """Return a stored object in the served version, to be changed."""
        data = (await self.view([entry]))[0].data
        return await _run(weight(data), False, codec.decode, data)

    async def view(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return stored objects as the served version shows them; raises 500 if a webhook fails."""
        found, time_slice = list(entries), TimeSlice()
        batches: dict[str, _Batch] = {}
        for index, entry in enumerate(entries):
            if entry.views is not None and self in entry.views:
                found[index] = entry.views[self] or entry
                continue
            await time_slice.step(len(entry.data))
            size = weight(entry.data)
            version, obj, data = await _run(size, True, self._defaulted_entry, entry)
            if version != self._served:
                batch = batches.setdefault(version, _Batch())
                batch.add(index, obj, size)
                if batch.size >= BATCH_BYTES:
                    await self._convert(batches.pop(version), entries, found)
            elif data is None:
                self._keep(entry, None)
            else:
                found[index] = self._shown(entry, data)
        for batch in batches.values():
            await self._convert(batch, entries, found)
        return found

    async def _convert(self, batch: _Batch, entries: Sequence[Entry], found: list[Entry]) -> None:
        """Put the objects of a batch, in the served version, where they belong."""
        shown = await self._versions.convert(batch.objects, self._served, batch.size, self._encoded, reading=True)
        for index, data in zip(batch.indices, shown, strict=True):
            found[index] = self._shown(entries[index], data)

    async def watch_events(self, watch_events: Sequence[WatchEvent]) -> list[WatchEvent]:
        """Return watch events with their objects in the served version."""
        entries = await self.view([watch_event.entry for watch_event in watch_events if watch_event.type != "BOOKMARK"])
        shown = iter(entries)
        return [
            WatchEvent(n.type, self._renamed(n.entry) if n.type == "BOOKMARK" else next(shown)) for n in watch_events
        ]

    async def in_version(self, obj: Object, version: str) -> Object:
        """Return an object of one version in another; raises 500 if a webhook fails."""
        size = weight(msgspec.json.encode(obj))
        return (await self._versions.convert([obj], version, size, partial(self._pruned, version=version)))[0]

    async def to_stored(self, obj: Object) -> Object:
        """Return an object of the served version as it is to be stored."""
        return obj if self._served == self._versions.storage else await self.in_version(obj, self._versions.storage)

    def _defaulted_entry(self, entry: Entry) -> tuple[str, Object, bytes | None]:
        """Return an entry's version, its object with defaults, and the bytes of that if it is served and they differ."""
        before = entry.obj
        version = str(before.get("apiVersion", "")).rpartition("/")[2]
        obj = self._defaulted(before, version)
        changed = version == self._served and obj != before
        return version, obj, codec.encode(obj) if changed else None

    def _defaulted(self, obj: Object, version: str) -> Object:
        """Return a copy with the defaults of its version put in and what that does not know dropped.

        Where these are too many it has none: it can still be read, corrected and deleted.
        """
        schema = self._versions.schemas.get(version)
        if schema is None:
            return obj
        copy: Object = prune(obj, schema, "", [], resource=True)
        try:
            fill(copy, schema)
        except StatusError:
            copy = prune(obj, schema, "", [], resource=True)
        return copy

    def _pruned(self, obj: Object, version: str) -> Object:
        pruned: Object = prune(obj, self._versions.schemas[version], "", [], resource=True)
        return pruned

    def _encoded(self, obj: Object) -> bytes:
        return codec.encode(self._pruned(obj, self._served))

    def _renamed(self, entry: Entry) -> Entry:
        data = codec.encode({**entry.obj, "apiVersion": self._wanted})
        return entry.in_version(codec.with_revision(data, entry.revision))

    def _shown(self, entry: Entry, data: bytes) -> Entry:
        shown = entry.in_version(codec.with_revision(data, entry.revision))
        self._keep(entry, shown)
        return shown

    def _keep(self, entry: Entry, shown: Entry | None) -> None:
        if entry.views is None:
            entry.views = {}
        entry.views[self] = shown


def _plain(error: Exception) -> str:
    return str(error).removeprefix("failed to call webhook: ")
