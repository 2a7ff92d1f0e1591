"""Leases: holder and expiry of a lock."""

from __future__ import annotations

from control.registry.rows import Rows
from control.registry.rules import minimum, not_negative
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field
from kube.json_object import Object


class LeaseStrategy(Strategy):
    columns = (NAME, Column("Holder", Field("spec.holderIdentity"), "Identity of the current holder."), AGE)
    allow_create_on_update = True
    allow_unconditional_update = False
    has_generation = False
    field_rules = Rows(
        ("spec.leaseDurationSeconds", minimum(1, "must be greater than 0")),
        ("spec.leaseTransitions", not_negative),
    )

    def default(self, obj: Object) -> None:
        """Drop the fields of coordinated leader election, which upstream leaves off."""
        spec = obj.get("spec") or {}
        for key in ("strategy", "preferredHolder"):
            spec.pop(key, None)
