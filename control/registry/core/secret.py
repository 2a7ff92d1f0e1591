"""Secrets: base64 values under keys, typed; `stringData` is a convenience of writing and is never stored."""

from __future__ import annotations

import base64
from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class SecretStrategy(Strategy):
    columns = (NAME, Column("Type", description="What the secret is for."), Column("Data", "integer"), AGE)
    has_generation = False

    def default(self, obj: Object) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(value.encode()).decode()

    def fields(self, obj: Object) -> dict[str, str]:
        return {"type": obj.get("type") or ""}

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), obj.get("type") or "", len(obj.get("data") or ()), age(created(obj), now)]
