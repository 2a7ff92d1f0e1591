"""IngressClasses: which controller serves an Ingress."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.checks import unchanged
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube.errors import FieldError, invalid_value, required


class IngressClassStrategy(Strategy):
    columns = (NAME, Column("Controller", description="Who serves it."), Column("Parameters"), AGE)

    def default(self, obj: Object) -> None:
        parameters = (obj.get("spec") or {}).get("parameters")
        if parameters is not None and not parameters.get("scope"):
            parameters["scope"] = "Cluster"

    def validate(self, obj: Object) -> list[FieldError]:
        controller = (obj.get("spec") or {}).get("controller") or ""
        if not controller:
            return [required("spec.controller")]
        if "/" not in controller:
            detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
            return [invalid_value("spec.controller", controller, detail)]
        return []

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return self.validate(obj) + unchanged(
            obj.get("spec") or {}, old.get("spec") or {}, "controller", "spec.controller"
        )

    def row(self, obj: Object, now: datetime) -> list[Any]:
        spec = obj.get("spec") or {}
        parameters, shown = spec.get("parameters"), NONE
        if parameters:
            group = parameters.get("apiGroup")
            shown = parameters.get("kind", "") + (f".{group}" if group else "") + f"/{parameters.get('name', '')}"
        return [name_of(obj), spec.get("controller") or "", shown, age(created(obj), now)]
