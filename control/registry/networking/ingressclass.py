"""IngressClasses: which controller serves an Ingress."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from control.registry.cells import AGE, NAME, NONE, Column, created, name_of
from control.registry.checks import each, one_of, unchanged
from control.registry.defaults import default_empty
from control.registry.strategy import Object, Strategy
from control.registry.tables import age
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required


def _validate_parameters(parameters: Object | None, path: str) -> list[FieldError]:
    if parameters is None:
        return []
    errors: list[FieldError] = []
    group = parameters.get("apiGroup")
    if group is not None:
        errors += each(f"{path}.apiGroup", group, names.dns1123_subdomain(group))
    for key in ("kind", "name"):
        value = parameters.get(key) or ""
        errors += each(f"{path}.{key}", value, names.path_segment(value)) if value else [required(f"{path}.{key}")]
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    errors += one_of(scope, ("Cluster", "Namespace"), f"{path}.scope")
    if scope == "Namespace":
        if namespace is None:
            errors.append(required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'"))
        else:
            errors += each(f"{path}.namespace", namespace, names.dns1123_label(namespace))
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden_field(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'"))
    return errors


class IngressClassStrategy(Strategy):
    columns = (NAME, Column("Controller", description="Who serves it."), Column("Parameters"), AGE)

    def default(self, obj: Object) -> None:
        default_empty((obj.get("spec") or {}).get("parameters"), scope="Cluster")

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        controller = spec.get("controller") or ""
        errors: list[FieldError] = []
        if not controller:
            errors.append(required("spec.controller"))
        else:
            if len(controller) > 250:
                errors.append(FieldError("spec.controller", "Too long", "may not be more than 250 bytes"))
            if "/" not in controller:
                detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
                errors.append(invalid_value("spec.controller", controller, detail))
        return errors + _validate_parameters(spec.get("parameters"), "spec.parameters")

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
