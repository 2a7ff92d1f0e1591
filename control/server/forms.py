"""Objects, lists and watch events as bytes in the form a client requested.

The plain form never decodes: an object's bytes go out as the cache holds them, a list is their join (without the items' kind
and apiVersion, which upstream's typed lists leave to the list's). Protobuf is made once an object and kept beside its JSON.
Tables and partial metadata are made from the decoded view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal

import msgspec

from control.event_loop import offload
from control.http.negotiate import MediaTypeOptions
from control.http.pieces import Pieces
from control.http.yaml_answer import dump_yaml
from control.registry.columns import Column
from control.registry.conversion import conversion
from control.registry.strategy import Strategy
from control.registry.tables import UNKNOWN
from control.server.shared_events import SharedEvents
from control.storage.entry import Entry
from control.storage.watcher import WatchEvent
from kube.clock import Clock
from kube.resources import Resource
from kube.schema import wire, wire_encode
from kube.schema.wire_stored import encode_stored

encode = msgspec.json.encode
_ODD_VALUE = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Raised by the columns of an object with a value that no body may have, which an older version stored."""
Include = Literal["None", "Metadata", "Object"]
_INCLUDE: dict[str, Include] = {"": "Metadata", "Metadata": "Metadata", "Object": "Object"}
Items = list[bytes]
_events = SharedEvents()


class Form:
    """Form of the objects in one response. `include` is the Table option includeObject, `pretty` a list with line breaks."""

    def __init__(
        self, wanted: MediaTypeOptions, strategy: Strategy, include: str, clock: Clock, *, pretty: bool = False
    ) -> None:
        self.wanted, self.strategy, self._clock = wanted, strategy, clock
        # Text of a client, which would be part of the key of each event that is kept.
        self.include: Include = _INCLUDE.get(include, "None")
        self._columns_sent = False
        found = conversion(strategy.resource)
        self._convert = found.to_served if found is not None else None
        self._json = not (wanted.yaml or wanted.protobuf)
        self.pretty = pretty and self._json

    @property
    def plain(self) -> bool:
        return self.wanted.form == "object" and self._json and self._convert is None and not self.pretty

    def _served(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj if self._convert is None else self._convert(obj)

    # -- one object -----------------------------------------------------------------------------------------------
    def entry(self, entry: Entry) -> bytes:
        """Show an object as the cache holds it."""
        if self.wanted.protobuf and self.wanted.form == "object":
            resource = self.strategy.resource
            return wire_encode.envelope(resource.api_version, resource.kind, self._framed(entry))
        return self.object(entry.data)

    def object(self, data: bytes) -> bytes:
        """Show an object given as JSON."""
        if self.plain:
            return data
        obj = self._served(msgspec.json.decode(data))
        if self.wanted.protobuf:
            return self._enveloped(obj)
        if self.wanted.form == "metadata":
            obj = self._partial(obj, kind="PartialObjectMetadata")
        elif self.wanted.form == "table":
            obj = self._table([obj], {"resourceVersion": obj.get("metadata", {}).get("resourceVersion", "")})
        return self._write(obj)

    def _enveloped(self, obj: dict[str, Any]) -> bytes:
        """Return an object, or what partial metadata leaves of it, in protobuf."""
        resource = self.strategy.resource
        if self.wanted.form == "metadata":
            message = wire_encode.framed(_metadata_message(obj))
            return wire_encode.envelope(f"meta.k8s.io/{self.wanted.version}", "PartialObjectMetadata", message)
        message = wire_encode.framed(encode_stored(obj, resource.module, resource.kind))
        return wire_encode.envelope(resource.api_version, resource.kind, message)

    def _framed(self, entry: Entry) -> bytes:
        """Return an object's message as a list's item, kept unless it has to be converted."""
        if entry.wire is not None and self._convert is None:
            return entry.wire
        resource = self.strategy.resource
        obj = self._served(msgspec.json.decode(entry.data))
        found = wire_encode.framed(encode_stored(obj, resource.module, resource.kind))
        if self._convert is None:
            entry.cache_protobuf(found)
        return found

    def _write(self, value: Any) -> bytes:
        if self.wanted.yaml:
            return dump_yaml(value)
        return encode(value)

    # -- lists ----------------------------------------------------------------------------------------------------
    def list(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        """Show a collection."""
        if not self.plain:
            return self.joined(self.items(entries), metadata).whole()
        objects = [entry.data for entry in entries]
        return self.stored_list(self.stored_items(objects, sum(map(len, objects))), metadata)

    def stored_list(self, items: bytes, metadata: dict[str, Any]) -> bytes:
        """Return a collection in the plain form, of what `stored_items` returned."""
        return b"".join((self._around(metadata)[0], b"{" if items and self.typed else b"", items, b"]}\n"))

    def stored_items(self, objects: Sequence[bytes], size: int) -> bytes:
        """Return objects as they are stored, `size` bytes together, as items of a collection in the plain form."""
        typed = self.typed
        between = b",{" if typed else b","
        items = between.join([data.removeprefix(typed) for data in objects])
        if len(items) != size - len(objects) * len(typed) + len(between) * max(0, len(objects) - 1):
            # Some were stored under another version.
            items = between.join([data[len(typed) :] for data in self._retyped(objects)])
        return items

    def as_stored(
        self, metadata: dict[str, Any], *, empty: bool = False
    ) -> tuple[Pieces, Callable[[Sequence[Entry]], Items]]:
        """Return a collection in the plain form without its items, and what makes items of entries."""
        typed, head = self.typed, self._around(metadata)[0]
        start = b"{" if typed else b""
        pieces = Pieces(head if empty else head + start, b"," + start, b"]}\n", len(typed))
        return pieces, lambda entries: self._retyped([entry.data for entry in entries])

    @property
    def typed(self) -> bytes:
        """Return what a stored object begins with and an item of a list does not have; custom ones keep their kind."""
        resource = self.strategy.resource
        if not resource.module:
            return b""
        return b'{"kind":"%b","apiVersion":"%b",' % (resource.kind.encode(), resource.api_version.encode())

    def _retyped(self, objects: Sequence[bytes]) -> Items:
        """Return objects that all begin with `typed`: some may have been stored under another version."""
        typed = self.typed
        return [data if data.startswith(typed) else typed + _untyped(data)[1:] for data in objects]

    def items(self, entries: Sequence[Entry]) -> Items:
        """Show objects as items of a collection, for `joined`.

        One at a time is decoded: all of them would take several times as much memory as the whole list.
        """
        now = self._clock.now()
        return [self._item(entry, now) for entry in entries]

    def joined(self, items: Items, metadata: dict[str, Any]) -> Pieces:
        """Show a collection of items that `items` returned."""
        if self.wanted.protobuf:
            resource = self.strategy.resource
            version, kind = resource.api_version, resource.kind + "List"
            if self.wanted.form == "metadata":
                version, kind = f"meta.k8s.io/{self.wanted.version}", "PartialObjectMetadataList"
            pieces = Pieces(*_around_wire(version, kind, metadata, items))
        else:
            head, tail = self._around(metadata, empty=not items)
            pieces = Pieces(head, b"" if self.wanted.yaml else b",\n    " if self.pretty else b",", tail)
        pieces.extend(items)
        return pieces

    def _item(self, entry: Entry, now: datetime) -> bytes:
        if self.wanted.form == "metadata":
            if self.wanted.protobuf:
                return wire_encode.framed(_metadata_message(entry.obj))
            return self._write_item(self._partial(entry.obj))
        if self.wanted.protobuf:
            return self._framed(entry)
        obj = self._served(entry.obj)
        if self.wanted.form == "table":
            return self._write_item(self._row(obj, now))
        if self.strategy.resource.module:  # a built-in one
            obj = {key: value for key, value in obj.items() if key not in ("kind", "apiVersion")}
        return self._write_item(obj)

    def _write_item(self, value: Any) -> bytes:
        if self.wanted.yaml:
            return dump_yaml([value])
        written = encode(value)
        # A string holds no line break: JSON escapes it.
        return msgspec.json.format(written, indent=2).replace(b"\n", b"\n    ") if self.pretty else written

    def _around(self, metadata: dict[str, Any], *, empty: bool = False) -> tuple[bytes, bytes]:
        """Return what stands before and behind the items of a collection that is not in protobuf."""
        resource, after = self.strategy.resource, dict[str, Any]()
        before = {"kind": resource.list_kind, "apiVersion": resource.api_version, "metadata": metadata}
        if self.wanted.form == "table":
            before = self._table([], metadata)
            del before["rows"]
        elif self.wanted.form == "metadata":
            before |= {"kind": "PartialObjectMetadataList", "apiVersion": f"meta.k8s.io/{self.wanted.version}"}
        elif self.wanted.yaml:
            after = {"kind": before.pop("kind"), "metadata": before.pop("metadata")}
        key = b"rows" if self.wanted.form == "table" else b"items"
        if self.wanted.yaml:
            return dump_yaml(before) + key + (b": []\n" if empty else b":\n"), dump_yaml(after) if after else b""
        head = encode(before)
        if not self.pretty:
            return b'%b,"%b":[' % (head[:-1], key), b"]}"
        start, end = (b"", b"") if empty else (b"\n    ", b"\n  ")
        head = msgspec.json.format(head, indent=2)
        return b'%b,\n  "%b": [%b' % (head[:-2], key, start), end + b"]\n}"

    # -- watch events ---------------------------------------------------------------------------------------------
    async def written_event(self, user: str, watch_event: WatchEvent) -> bytes:
        """Return one watch event as a line; that of a large object is written beside the loop, at the user's turn."""
        written = watch_event.frame is not None and self.wanted.protobuf and self.wanted.form == "object"
        if self.plain or written or len(watch_event.entry.data) < offload.LARGE:
            return self.event(watch_event)
        form, now = self._shared_form(watch_event)
        write = partial(self._event, watch_event, columns=form[-1])
        return await _events.get_apart(user, watch_event.entry, form, now, write)

    def event(self, watch_event: WatchEvent) -> bytes:
        """Return one watch event as a line."""
        if self.plain:
            return watch_event.wire
        if self.wanted.protobuf and self.wanted.form == "object":
            return self._wire_event(watch_event)
        form, now = self._shared_form(watch_event)
        return _events.get(watch_event.entry, form, now, lambda: self._event(watch_event, columns=form[-1]))

    def _shared_form(self, watch_event: WatchEvent) -> tuple[tuple[Any, ...], float]:
        """Return what an event is kept under beside its object, at last whether it has the columns, and the time."""
        columns = self.wanted.form == "table" and not self._columns_sent
        self._columns_sent = True
        return (watch_event.type, self.strategy, self.wanted, self.include, columns), self._clock.now().timestamp()

    def _event(self, watch_event: WatchEvent, *, columns: bool) -> bytes:
        if self.wanted.protobuf:
            return self._wire_event(watch_event)
        obj = self._served(watch_event.entry.obj)
        if self.wanted.form == "metadata":
            shown = self._partial(obj, "PartialObjectMetadata")
        elif self.wanted.form == "table":
            revision = obj["metadata"].get("resourceVersion", "")
            rows = [] if watch_event.type == "BOOKMARK" else [obj]
            shown = self._table(rows, {"resourceVersion": revision}, columns=columns)
            if watch_event.type == "BOOKMARK":
                annotations = obj["metadata"].get("annotations")
                if annotations:
                    row = {"cells": [None] * len(self.strategy.columns), "object": self._partial(obj)}
                    shown["rows"] = [row]
        else:
            shown = obj
        return self._write({"type": watch_event.type, "object": shown}) + (b"" if self.wanted.yaml else b"\n")

    def _wire_event(self, watch_event: WatchEvent) -> bytes:
        shared = self.wanted.form == "object" and self._convert is None
        if shared and watch_event.frame is not None:
            return watch_event.frame
        obj = self._served(msgspec.json.decode(watch_event.entry.data))
        frame = wire_encode.watch_frame(watch_event.type, self._enveloped(obj))
        if shared:
            watch_event.frame = frame
        return frame

    def error(self, status: dict[str, Any]) -> bytes:
        """Show what ends a watch as its last event."""
        if self.wanted.protobuf:
            message = wire_encode.framed(wire_encode.encode(status, "meta_v1", "Status"))
            return wire_encode.watch_frame("ERROR", wire_encode.envelope("v1", "Status", message))
        return encode({"type": "ERROR", "object": status}) + b"\n"

    # -- parts ----------------------------------------------------------------------------------------------------
    def _partial(self, obj: dict[str, Any], kind: str = "PartialObjectMetadata") -> dict[str, Any]:
        head = {"kind": kind, "apiVersion": f"meta.k8s.io/{self.wanted.version}"} if kind else {}
        return {**head, "metadata": obj.get("metadata", {})}

    def _table(
        self, objects: Sequence[dict[str, Any]], metadata: dict[str, Any], *, columns: bool = True
    ) -> dict[str, Any]:
        # A watch outlives the moment it began: ages count to when a row is made.
        now = self._clock.now()
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.wanted.version}",
            "metadata": metadata,
            "columnDefinitions": [_definition(c) for c in self.strategy.columns] if columns else None,
            "rows": [self._row(obj, now) for obj in objects],
        }

    def _row(self, obj: dict[str, Any], now: datetime) -> dict[str, Any]:
        try:
            row: dict[str, Any] = {"cells": self.strategy.row(obj, now)}
            conditions = self.strategy.row_conditions(obj)
        except _ODD_VALUE:  # the others' rows are shown
            row, conditions = {"cells": _unknown_cells(obj, self.strategy.columns)}, []
        if conditions:
            row["conditions"] = conditions
        if self.include == "Object":
            row["object"] = obj
        elif self.include == "Metadata":
            row["object"] = self._partial(obj)
        else:
            row["object"] = None
        return row


def has_protobuf(resource: Resource) -> bool:
    """Return whether a resource's objects have a protobuf form: the built-in ones do, custom ones do not."""
    return wire.known(resource.module, resource.kind)


def _around_wire(version: str, kind: str, metadata: dict[str, Any], items: Items) -> tuple[bytes, bytes, bytes]:
    head, tail = wire_encode.around_list(version, kind, metadata, sum(map(len, items)))
    return head, b"", tail


def _metadata_message(obj: dict[str, Any]) -> bytes:
    return encode_stored({"metadata": obj.get("metadata", {})}, "meta_v1", "PartialObjectMetadata")


def _unknown_cells(obj: dict[str, Any], columns: Sequence[Column]) -> list[Any]:
    """Return a row that shows an object's name and nothing else."""
    return [obj["metadata"].get("name", "") if column.format == "name" else UNKNOWN for column in columns]


def _untyped(data: bytes) -> bytes:
    """Return an object that was stored under another version, without its kind and apiVersion."""
    obj: dict[str, Any] = msgspec.json.decode(data)
    return encode({k: v for k, v in obj.items() if k not in ("kind", "apiVersion")})


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }
