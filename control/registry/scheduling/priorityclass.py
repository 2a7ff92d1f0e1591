"""PriorityClasses: defaults and checks; a class names a priority of pods."""

from __future__ import annotations

from control.registry.changes import validate_immutable
from control.registry.defaults import Defaults
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, name_of
from kube.errors import FieldError, forbidden_field, not_supported
from kube.json_object import Object

HIGHEST_USER_PRIORITY = 1_000_000_000
SYSTEM_CLASSES = {"system-node-critical": 2_000_001_000, "system-cluster-critical": 2_000_000_000}
POLICIES = ("Never", "PreemptLowerPriority")


class PriorityClassStrategy(Strategy):
    columns = (
        NAME,
        Column("Value", Field("value", 0), "The priority.", type="integer"),
        Column("Global-Default", Field("globalDefault", False), "Whether pods without a class get it.", type="boolean"),
        AGE,
        Column("PreemptionPolicy", Field("preemptionPolicy"), "Whether its pods push others out.", priority=1),
    )
    field_defaults = Defaults(("preemptionPolicy", "PreemptLowerPriority"))

    def validate(self, obj: Object) -> list[FieldError]:
        errors, name = [], name_of(obj)
        if name.startswith("system-"):
            if SYSTEM_CLASSES.get(name) != obj.get("value", 0):
                detail = "priority class names with 'system-' prefix are reserved for system use only. error: " + (
                    f"value of {name} PriorityClass must be {SYSTEM_CLASSES[name]}"
                    if name in SYSTEM_CLASSES
                    else f"{name} is not a known system priority class"
                )
                errors.append(forbidden_field("metadata.name", detail))
        elif obj.get("value", 0) > HIGHEST_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            errors.append(forbidden_field("value", detail))
        if obj.get("preemptionPolicy") not in POLICIES:
            errors.append(not_supported("preemptionPolicy", obj.get("preemptionPolicy"), POLICIES))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = []
        if obj.get("value", 0) != old.get("value", 0):
            errors.append(forbidden_field("value", "may not be changed in an update."))
        return errors + validate_immutable(obj, old, "preemptionPolicy")
