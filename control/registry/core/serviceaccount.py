"""ServiceAccounts: identities of pods."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class ServiceAccountStrategy(Strategy):
    columns = (NAME, Column("Secrets", description="How many secrets pods of this account may use."), AGE)
    has_generation = False

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), len(obj.get("secrets") or ()), age(created(obj), now)]
