"""ConfigMaps: text and binary values under keys, at most 1 MiB together, frozen once immutable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class ConfigMapStrategy(Strategy):
    columns = (NAME, Column("Data", description="How many values there are."), AGE)
    has_generation = False

    def row(self, obj: Object, now: datetime) -> list[Any]:
        count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
        return [name_of(obj), count, age(created(obj), now)]
