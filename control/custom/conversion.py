"""From what is stored to the version that is served, and back: by renaming (strategy None) or by asking a webhook.

An object is stored in the version that was the stored one when it was written. Reading it puts in the defaults and drops the
fields of that version's schema as it is now, converts, and drops what the served version does not know. The outcome is kept
with the cache's entry, so that an object pays for this once, and one that needs nothing stays the bytes that the cache holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from control.admission.webhooks.caller import CallFailed
from control.custom.webhooks import Webhooks
from control.interfaces.acting import ACTING
from control.pacing import TimeSlice
from control.registry.checks import labels
from control.registry.metadata import validate_annotations
from control.schemas.schema import Schema, fill, prune
from control.storage import codec
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube.errors import StatusError
from kube.json_object import Object, go_type
from kube.uid import new_uid

TIMEOUT = 30.0
MOST_PROBLEMS = 8
"""Errors of labels or annotations that are reported."""
REVIEWS = ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1")
"""Supported review versions; the first one that a definition names is used."""


class BadConversion(Exception):
    """A webhook returned an invalid response."""


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

    async def convert(self, objects: list[Object], version: str) -> list[Object]:
        """Return objects in a version, all of one other version before; raises 500 if a webhook fails."""
        wanted = self.api_version(version)
        if self._webhook is None or not objects:
            return [{**obj, "apiVersion": wanted} for obj in objects]
        source = f"{objects[0]['apiVersion']}, Kind={self.kind}"
        uid = new_uid()
        review = {
            "kind": "ConversionReview",
            "apiVersion": self._review,
            "request": {"uid": uid, "desiredAPIVersion": wanted, "objects": objects},
        }
        try:
            answer = await self._webhooks.call(self._webhook.get("clientConfig") or {}, review, TIMEOUT, ACTING.get())
            return self._checked(msgspec.json.decode(answer), uid, objects, wanted, source)
        except (CallFailed, BadConversion, msgspec.DecodeError) as error:
            raise StatusError(500, "", f"conversion webhook for {source} failed: {_plain(error)}") from error

    def _checked(self, answer: Any, uid: str, objects: list[Object], wanted: str, source: str) -> list[Object]:
        """Check a webhook's answer, and let it change nothing of metadata but labels and annotations."""
        review = answer if isinstance(answer, dict) else {}
        response = review.get("response")
        older = self._review != REVIEWS[0]
        if older:
            # A webhook that answers in the older form need name neither that nor the request.
            review = {"apiVersion": self._review, "kind": "ConversionReview", **review}
        if (review.get("apiVersion"), review.get("kind")) != (self._review, "ConversionReview"):
            raise BadConversion(f"invalid response: expected {self._review}, Kind=ConversionReview")
        if not isinstance(response, dict):
            raise BadConversion("invalid response: no response provided")
        if not older and response.get("uid") != uid:
            raise BadConversion(f'invalid response: expected response.uid="{uid}", got "{response.get("uid")}"')
        result = response.get("result") or {}
        if result.get("status") != "Success":
            raise BadConversion(result.get("message") or f"response.result.status was '{result.get('status', '')}'")
        converted = response.get("convertedObjects") or []
        if len(converted) != len(objects):
            why = f"returned {len(converted)} objects, expected {len(objects)}"
            raise StatusError(500, "", f"conversion webhook for {source} {why}")
        found = []
        for index, (new, old) in enumerate(zip(converted, objects, strict=True)):
            why = ""
            if not isinstance(new, dict) or not isinstance(new.get("metadata", {}), dict):
                raise BadConversion(f"invalid converted object at index {index}")
            if new.get("apiVersion") != wanted:
                why = f"invalid groupVersion (expected {wanted}, received {new.get('apiVersion')})"
            elif new.get("kind") != self.kind:
                why = f"invalid kind (expected {self.kind}, received {new.get('kind')})"
            if why:
                raise StatusError(
                    500,
                    "",
                    f"conversion webhook for {source} returned invalid converted object at index {index}: {why}",
                )
            given, metadata = new.get("metadata") or {}, dict(old["metadata"])
            if given.get("uid", metadata.get("uid")) != metadata.get("uid") or given.get("name") != metadata.get(
                "name"
            ):
                why = f"returned invalid metadata in object at index {index}: must have the same name and UID"
                raise StatusError(500, "", f"conversion webhook for {source} {why}")
            try:
                _restore_texts(given, metadata)
            except ValueError as error:
                why = f"returned invalid metadata in object at index {index}: {error}"
                raise StatusError(500, "", f"conversion webhook for {source} {why}") from error
            found.append({**new, "metadata": metadata})
        return found


def _restore_texts(given: Object, metadata: Object) -> None:
    """Take over a webhook's labels and annotations, checked where they changed; raises ValueError with upstream's text."""
    for part in ("labels", "annotations"):
        value, before = given.get(part), metadata.pop(part, None)
        if value is None:
            continue
        if not isinstance(value, dict):
            raise ValueError(f"invalid metadata.{part} of type {go_type(value)} in converted object")
        for key, text in value.items():
            if not isinstance(text, str):
                raise ValueError(f"metadata.{part}[{key}] must be a string, but is {go_type(text)} in converted object")
        if value and value != before:
            problems = labels(value, "metadata.labels") if part == "labels" else validate_annotations(value)
            texts = [str(problem) for problem in problems[:MOST_PROBLEMS]]
            if texts:
                raise ValueError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")
        if value:
            metadata[part] = value


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
        return bool(entry.obj.get("apiVersion") == self._stored)

    async def read(self, entry: Entry) -> Object:
        """Return a stored object in the served version, to be changed."""
        return codec.decode((await self.view([entry]))[0].data)

    async def view(self, entries: Sequence[Entry]) -> list[Entry]:
        """Return stored objects as the served version shows them; raises 500 if a webhook fails."""
        found, time_slice = list(entries), TimeSlice()
        foreign: dict[str, list[tuple[int, Object]]] = {}
        for index, entry in enumerate(entries):
            if entry.views is not None and self in entry.views:
                found[index] = entry.views[self] or entry
                continue
            await time_slice.step(len(entry.data))
            before = entry.obj
            version = str(before.get("apiVersion", "")).rpartition("/")[2]
            obj = self._settled(before, version)
            if version != self._served:
                foreign.setdefault(version, []).append((index, obj))
            elif obj == before:
                self._keep(entry, None)
            else:
                found[index] = self._shown(entry, obj)
        for items in foreign.values():
            converted = await self._versions.convert([obj for _, obj in items], self._served)
            for (index, _), obj in zip(items, converted, strict=True):
                await time_slice.step(len(entries[index].data))
                found[index] = self._shown(entries[index], self._pruned(obj, self._served))
        return found

    async def watch_events(self, watch_events: Sequence[WatchEvent]) -> list[WatchEvent]:
        """Return watch events with their objects in the served version."""
        entries = await self.view([watch_event.entry for watch_event in watch_events if watch_event.type != "BOOKMARK"])
        shown = iter(entries)
        return [
            WatchEvent(n.type, self._renamed(n.entry) if n.type == "BOOKMARK" else next(shown)) for n in watch_events
        ]

    async def in_version(self, obj: Object, version: str) -> Object:
        """Return an object of one version in another; raises 500 if a webhook fails."""
        converted = (await self._versions.convert([obj], version))[0]
        return self._pruned(converted, version)

    async def to_stored(self, obj: Object) -> Object:
        """Return an object of the served version as it is to be stored."""
        if self._served == self._versions.storage:
            return obj
        converted = (await self._versions.convert([obj], self._versions.storage))[0]
        return self._pruned(converted, self._versions.storage)

    def _settled(self, obj: Object, version: str) -> Object:
        """Return a copy with the defaults of its version put in and what that does not know dropped."""
        schema = self._versions.schemas.get(version)
        if schema is None:
            return obj
        copy: Object = prune(obj, schema, "", [], resource=True)
        fill(copy, schema)
        return copy

    def _pruned(self, obj: Object, version: str) -> Object:
        pruned: Object = prune(obj, self._versions.schemas[version], "", [], resource=True)
        return pruned

    def _renamed(self, entry: Entry) -> Entry:
        data = codec.encode({**entry.obj, "apiVersion": self._wanted})
        return entry.in_version(codec.with_revision(data, entry.revision))

    def _shown(self, entry: Entry, obj: Object) -> Entry:
        shown = entry.in_version(codec.with_revision(codec.encode(obj), entry.revision))
        self._keep(entry, shown)
        return shown

    def _keep(self, entry: Entry, shown: Entry | None) -> None:
        if entry.views is None:
            entry.views = {}
        entry.views[self] = shown


def _plain(error: Exception) -> str:
    return str(error).removeprefix("failed to call webhook: ")
