"""IngressClasses: which controller serves an Ingress."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.strategy import Object, Strategy
from control.registry.tables import age


class IngressClassStrategy(Strategy):
    columns = (NAME, Column("Controller", description="Who serves it."), Column("Parameters"), AGE)

    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and not parameters.get("scope"):
            parameters["scope"] = "Cluster"

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        parameters, shown = spec.get("parameters"), NONE
        if parameters:
            group = parameters.get("apiGroup")
            shown = parameters.get("kind", "") + (f".{group}" if group else "") + f"/{parameters.get('name', '')}"
        return [name_of(obj), spec.get("controller") or "", shown, age(created(obj), now)]
