"""Objects, lists and watch events as bytes in the form a client asked for.

The plain form never decodes: an object's bytes go out as the cache holds them, a list is their join. Tables and partial
metadata are made from the decoded view.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import yaml

from control.registry.conversion import conversion
from control.registry.strategy import Column, Strategy
from control.server.negotiate import Wanted
from control.storage.entry import Entry
from control.storage.watcher import Notice
from kube.clock import Clock

encode = msgspec.json.encode
Include = Literal["None", "Metadata", "Object"]


class Form:
    """How one request's objects are shown. `include` is the Table option includeObject."""

    def __init__(self, wanted: Wanted, strategy: Strategy, include: str, clock: Clock) -> None:
        self.wanted, self.strategy, self._clock = wanted, strategy, clock
        self.include = include or "Metadata"
        self._columns_sent = False
        found = conversion(strategy.resource)
        self._convert = found.to_served if found is not None else None

    @property
    def plain(self) -> bool:
        return self.wanted.form == "object" and not self.wanted.yaml and self._convert is None

    def _served(self, obj: dict[str, Any]) -> dict[str, Any]:
        return obj if self._convert is None else self._convert(obj)

    # -- one object -----------------------------------------------------------------------------------------------
    def object(self, data: bytes) -> bytes:
        """Show an object given as JSON."""
        if self.plain:
            return data
        obj = self._served(msgspec.json.decode(data))
        if self.wanted.form == "metadata":
            obj = self._partial(obj, kind="PartialObjectMetadata")
        elif self.wanted.form == "table":
            obj = self._table([obj], {"resourceVersion": obj.get("metadata", {}).get("resourceVersion", "")})
        return self._write(obj)

    def _write(self, value: Any) -> bytes:
        if self.wanted.yaml:
            text: str = yaml.safe_dump(value, sort_keys=False, default_flow_style=False)
            return text.encode()
        return encode(value)

    # -- lists ----------------------------------------------------------------------------------------------------
    def list(self, entries: Sequence[Entry], metadata: dict[str, Any]) -> bytes:
        """Show a collection."""
        resource = self.strategy.resource
        if self.plain:
            head = encode({"kind": resource.kind + "List", "apiVersion": resource.api_version, "metadata": metadata})
            return b'%b,"items":[%b]}\n' % (head[:-1], b",".join([entry.data for entry in entries]))
        if self.wanted.form == "table":
            return self._write(self._table([self._served(entry.obj) for entry in entries], metadata))
        if self.wanted.form == "metadata":
            items = [self._partial(entry.obj, "") for entry in entries]
            version = f"meta.k8s.io/{self.wanted.version}"
            return self._write(
                {"kind": "PartialObjectMetadataList", "apiVersion": version, "metadata": metadata, "items": items}
            )
        items = [self._served(entry.obj) for entry in entries]
        return self._write(
            {"apiVersion": resource.api_version, "items": items, "kind": resource.kind + "List", "metadata": metadata}
        )

    # -- watch events ---------------------------------------------------------------------------------------------
    def event(self, notice: Notice) -> bytes:
        """Show one watch event as a line."""
        if self.plain:
            return notice.wire
        obj = self._served(notice.entry.obj)
        if self.wanted.form == "metadata":
            shown = self._partial(obj, "PartialObjectMetadata")
        elif self.wanted.form == "table":
            revision = obj["metadata"].get("resourceVersion", "")
            rows = [] if notice.type == "BOOKMARK" else [obj]
            shown = self._table(rows, {"resourceVersion": revision}, columns=not self._columns_sent)
            if notice.type == "BOOKMARK":
                annotations = obj["metadata"].get("annotations")
                if annotations:
                    row = {"cells": [None] * len(self.strategy.columns), "object": self._partial(obj)}
                    shown["rows"] = [row]
            self._columns_sent = True
        else:
            shown = obj
        return self._write({"type": notice.type, "object": shown}) + (b"" if self.wanted.yaml else b"\n")

    # -- parts ----------------------------------------------------------------------------------------------------
    def _partial(self, obj: dict[str, Any], kind: str = "PartialObjectMetadata") -> dict[str, Any]:
        head = {"kind": kind, "apiVersion": f"meta.k8s.io/{self.wanted.version}"} if kind else {}
        return {**head, "metadata": obj.get("metadata", {})}

    def _table(
        self, objects: Sequence[dict[str, Any]], metadata: dict[str, Any], columns: bool = True
    ) -> dict[str, Any]:
        # A watch outlives the moment it began: ages count to when a row is made.
        now = self._clock.now()
        rows = []
        for obj in objects:
            row: dict[str, Any] = {"cells": self.strategy.row(obj, now)}
            conditions = self.strategy.row_conditions(obj)
            if conditions:
                row["conditions"] = conditions
            if self.include == "Object":
                row["object"] = obj
            elif self.include == "Metadata":
                row["object"] = self._partial(obj)
            else:
                row["object"] = None
            rows.append(row)
        return {
            "kind": "Table",
            "apiVersion": f"meta.k8s.io/{self.wanted.version}",
            "metadata": metadata,
            "columnDefinitions": [_definition(c) for c in self.strategy.columns] if columns else [],
            "rows": rows,
        }


def _definition(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "type": column.type,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    }
