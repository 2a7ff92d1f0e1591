"""ConfigMaps: text and binary values under keys, at most 1 MiB together, frozen once immutable."""

from __future__ import annotations

from control.registry.core.data_keys import decoded_size, validate_frozen, validate_keys, validate_size
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, invalid_value
from kube.json_object import Object


def _count(config_map: Object) -> int:
    return len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())


class ConfigMapStrategy(Strategy):
    columns = (NAME, Column("Data", Field("", show=_count), "How many values there are."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors = list(validate_keys(data, "data"))
        for key in data.keys() & binary.keys():
            errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors += validate_keys(binary, "binaryData")
        # The size is that of the whole object, which has no name of its own as a field.
        total = sum(len(v.encode()) for v in data.values()) + sum(map(decoded_size, binary.values()))
        return errors + validate_size(total, "[]")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_frozen(obj, old, ("data", "binaryData")) + self.validate(obj)
