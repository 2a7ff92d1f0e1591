"""ConfigMaps: text and binary values under keys, at most 1 MiB together, frozen once immutable."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.core.data_keys import decoded_size, validate_frozen, validate_keys, validate_size
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value


class ConfigMapStrategy(Strategy):
    columns = (NAME, Column("Data", description="How many values there are."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors = validate_keys(data, "data")
        for key in data.keys() & binary.keys():
            errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors += validate_keys(binary, "binaryData")
        # The size is that of the whole object, which has no name of its own as a field.
        total = sum(len(v.encode()) for v in data.values()) + sum(map(decoded_size, binary.values()))
        return errors + validate_size(total, "[]")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_frozen(obj, old, ("data", "binaryData")) + self.validate(obj)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        count = len(obj.get("data") or ()) + len(obj.get("binaryData") or ())
        return [name_of(obj), count, age(created(obj), now)]
