"""Roles and ClusterRoles."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import CREATED_AT, NAME, created, name_of
from control.registry.naming import path_segment
from control.registry.strategy import Object, Strategy


class RoleStrategy(Strategy):
    columns = (NAME, CREATED_AT)
    allow_create_on_update = True
    has_generation = False

    def name_errors(self, name: str, prefix: bool = False) -> list[str]:
        return path_segment(name, prefix)

    def row(self, obj: Object, now: datetime) -> list[Any]:
        return [name_of(obj), created(obj) or ""]
