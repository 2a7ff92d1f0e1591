"""StorageClasses and VolumeAttributesClasses: defaults, validation and immutable fields."""

from __future__ import annotations

from dataclasses import replace

from control.default_class import STORAGE_MARKS, marked
from control.registry.changes import validate_immutable
from control.registry.checks import each, repeated
from control.registry.core.deprecated import OLD_LABELS
from control.registry.defaults import default_empty
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, name_of
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, not_supported, required, too_long
from kube.json_object import Object
from kube.names import qualified_name

_MOST_PARAMETERS = 512
_LARGEST_PARAMETERS = 256 * 1024
_FROZEN = ("parameters", "provisioner", "reclaimPolicy")


def validate_topologies(terms: list[Object], path: str) -> list[FieldError]:
    """Check where volumes of a class may be made: no key, value or whole term twice."""
    errors: list[FieldError] = []
    seen = {frozenset[tuple[str, frozenset[str]]]()}  # upstream counts a term without expressions as a duplicate
    for index, term in enumerate(terms):
        found: dict[str, frozenset[str]] = {}
        for number, requirement in enumerate(term.get("matchLabelExpressions") or ()):
            where = f"{path}[{index}].matchLabelExpressions[{number}]"
            key, values = requirement.get("key") or "", requirement.get("values") or []
            if not values:
                errors.append(required(f"{where}.values"))
            errors += [duplicate(f"{where}.values[{i}]", values[i]) for i in sorted(repeated(values))]
            errors += each(f"{where}.key", key, qualified_name(key))
            if key in found:
                errors.append(duplicate(f"{where}.key", key))
            found[key] = frozenset(values)
        whole = frozenset(found.items())
        if whole in seen:
            errors.append(duplicate(f"{path}[{index}].matchLabelExpressions", ""))
        seen.add(whole)
    return errors


def _name(obj: Object) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return name_of(obj) + (" (default)" if marked(annotations, STORAGE_MARKS) else "")


def _driver(name: str, path: str) -> list[FieldError]:
    return each(path, name, qualified_name(name.lower())) if name else [required(path)]


def _parameters(parameters: dict[str, str]) -> list[FieldError]:
    """Check parameters for a driver: their number and their size."""
    if len(parameters) > _MOST_PARAMETERS:
        return [too_long("parameters", _MOST_PARAMETERS)]
    errors = [invalid_value("parameters", "", "field can not be empty.")] if "" in parameters else []
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    return errors + ([too_long("parameters", _LARGEST_PARAMETERS)] if size > _LARGEST_PARAMETERS else [])


class StorageClassStrategy(Strategy):
    columns = (
        replace(NAME, cell=Field("", show=_name)),
        Column("Provisioner", Field("provisioner"), "Who makes the volumes."),
        Column(
            "ReclaimPolicy", Field("reclaimPolicy", "Delete"), "What becomes of a volume that is no longer claimed."
        ),
        Column("VolumeBindingMode", Field("volumeBindingMode", "Immediate"), "When a volume is made and bound."),
        Column("AllowVolumeExpansion", Field("allowVolumeExpansion", False), "Whether claims may grow."),
        AGE,
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        default_empty(obj, ("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate"))

    def validate(self, obj: Object) -> list[FieldError]:
        errors = _driver(obj.get("provisioner") or "", "provisioner") + _parameters(obj.get("parameters") or {})
        errors += validate_topologies(obj.get("allowedTopologies") or [], "allowedTopologies")
        for key, allowed in (
            ("reclaimPolicy", ("Delete", "Retain")),
            ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
        ):
            if obj.get(key) not in allowed:
                errors.append(not_supported(key, obj.get(key), allowed))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        frozen = [key for key in _FROZEN if (obj.get(key) or None) != (old.get(key) or None)]
        errors = [forbidden_field(key, f"updates to {key} are forbidden.") for key in frozen]
        return errors + validate_immutable(obj, old, "volumeBindingMode", "allowedTopologies")

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return [
            f"allowedTopologies[{index}].matchLabelExpressions[{number}].key: {OLD_LABELS[key]}"
            for index, term in enumerate(obj.get("allowedTopologies") or ())
            for number, requirement in enumerate(term.get("matchLabelExpressions") or ())
            if (key := requirement.get("key")) in OLD_LABELS
        ]


class VolumeAttributesClassStrategy(Strategy):
    columns = (NAME, Column("DriverName", Field("driverName"), "Whose attributes they are."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        parameters = obj.get("parameters") or {}
        errors = _driver(obj.get("driverName") or "", "driverName") + _parameters(parameters)
        return errors if parameters else [*errors, required("parameters", "must contain at least one key/value pair")]

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        keys = [k for k in ("driverName", "parameters") if obj.get(k) != old.get(k)]
        return [forbidden_field(key, f"updates to {key} are forbidden.") for key in keys] + self.validate(obj)
