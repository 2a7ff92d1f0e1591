"""Leases: holder and expiry of a lock."""

from __future__ import annotations

from control.registry.checks import non_negative
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.errors import FieldError, invalid_value
from kube.json_object import Object


class LeaseStrategy(Strategy):
    columns = (NAME, Column("Holder", Field("spec.holderIdentity"), "Identity of the current holder."), AGE)
    allow_create_on_update = True
    allow_unconditional_update = False
    has_generation = False

    def default(self, obj: Object) -> None:
        """Drop the fields of coordinated leader election, which upstream leaves off."""
        spec = obj.get("spec") or {}
        for key in ("strategy", "preferredHolder"):
            spec.pop(key, None)

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = []
        seconds = spec.get("leaseDurationSeconds")
        if seconds is not None and seconds <= 0:
            errors.append(invalid_value("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
        return errors + non_negative(spec.get("leaseTransitions"), "spec.leaseTransitions")
