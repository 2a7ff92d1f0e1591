"""RuntimeClasses: which of the runtime's handlers runs a pod, and what that costs."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value
from kube.names import dns1123_label


class RuntimeClassStrategy(Strategy):
    columns = (NAME, Column("Handler", description="The runtime's handler."), AGE)
    allow_unconditional_update = False
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        handler = obj.get("handler") or ""
        return [invalid_value("handler", handler, e) for e in dns1123_label(handler)]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        if obj.get("handler") == old.get("handler"):
            return []
        return [invalid_value("handler", obj.get("handler"), "field is immutable")]

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), obj.get("handler") or "", age(created(obj), now)]
