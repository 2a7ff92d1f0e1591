"""LimitRanges: what containers of a namespace may ask for, and what they get unasked."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import CREATED_AT, NAME, created, name_of
from control.registry.strategy import Object, Strategy


class LimitRangeStrategy(Strategy):
    columns = (NAME, CREATED_AT)
    allow_create_on_update = True
    has_generation = False

    def default(self, obj: Object) -> None:
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            # The default limit falls to the maximum, the default request to the default limit, then the minimum.
            for target, sources in (("default", ("max",)), ("defaultRequest", ("default", "min"))):
                for source in sources:
                    for name, quantity in (item.get(source) or {}).items():
                        item.setdefault(target, {}).setdefault(name, quantity)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), created(obj) or ""]
