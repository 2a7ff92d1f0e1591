"""StorageClasses and VolumeAttributesClasses: defaults, validation and immutable fields."""

from __future__ import annotations

from msgspec.structs import replace

from control.interfaces.default_class import STORAGE_MARKS, marked
from control.registry.changes import validate_immutable
from control.registry.checks import Errors, FieldErrors, each
from control.registry.core.deprecated import OLD_LABELS
from control.registry.defaults import Defaults
from control.registry.rows import Rows
from control.registry.rules import enum, form, max_map_bytes, require, unique_item
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, name_of
from kube.errors import FieldError, duplicate, forbidden_field, invalid_value, required, too_long
from kube.json_object import Object
from kube.names import qualified_name

_MOST_PARAMETERS = 512
_LARGEST_PARAMETERS = 256 * 1024
_FROZEN = ("parameters", "provisioner", "reclaimPolicy")
_TERM = Rows(
    ("matchLabelExpressions[*].values", require()),
    ("matchLabelExpressions[*].values[*]", unique_item),
    ("matchLabelExpressions[*].key", form(qualified_name), unique_item),
)


def _topologies(terms: list[Object] | None, path: str) -> FieldErrors:
    """Check where volumes of a class may be made: no key, value or whole term twice."""
    seen = {frozenset[tuple[str, frozenset[str]]]()}  # upstream counts a term without expressions as a duplicate
    for index, term in enumerate(terms or ()):
        yield from _TERM(term, f"{path}[{index}]")
        expressions = term.get("matchLabelExpressions") or ()
        whole = frozenset({e.get("key") or "": frozenset(e.get("values") or ()) for e in expressions}.items())
        if whole in seen:
            yield duplicate(f"{path}[{index}].matchLabelExpressions", "")
        seen.add(whole)


def _name(obj: Object) -> str:
    annotations = obj.get("metadata", {}).get("annotations") or {}
    return name_of(obj) + (" (default)" if marked(annotations, STORAGE_MARKS) else "")


def _driver(name: str | None, path: str) -> Errors:
    return each(path, name, qualified_name(name.lower())) if name else [required(path)]


def _parameters(parameters: dict[str, str] | None, path: str) -> Errors:
    """Check parameters for a driver: their number and their size."""
    if len(parameters or ()) > _MOST_PARAMETERS:
        return [too_long(path, _MOST_PARAMETERS)]
    errors = [invalid_value(path, "", "field can not be empty.")] if "" in (parameters or ()) else []
    return errors + max_map_bytes(_LARGEST_PARAMETERS)(parameters, path)


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
    field_rules = Rows(
        ("provisioner", _driver),
        ("parameters", _parameters),
        ("allowedTopologies", _topologies),
        ("reclaimPolicy", enum("Delete", "Retain")),
        ("volumeBindingMode", enum("Immediate", "WaitForFirstConsumer")),
    )
    has_generation = False
    field_defaults = Defaults(("reclaimPolicy", "Delete"), ("volumeBindingMode", "Immediate"))

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
    field_rules = Rows(
        ("driverName", _driver),
        ("parameters", _parameters, require("must contain at least one key/value pair")),
    )
    has_generation = False

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        keys = [k for k in ("driverName", "parameters") if obj.get(k) != old.get(k)]
        return [forbidden_field(key, f"updates to {key} are forbidden.") for key in keys] + self.validate(obj)
