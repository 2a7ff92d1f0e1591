"""IngressClasses: the controller of an Ingress."""

from __future__ import annotations

from control.registry.checks import each, one_of, required_name
from control.registry.defaults import default_empty
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required, too_long
from kube.json_object import Object


def _validate_parameters(parameters: Object | None, path: str) -> list[FieldError]:
    if parameters is None:
        return []
    errors: list[FieldError] = []
    group = parameters.get("apiGroup")
    if group is not None:
        errors += each(f"{path}.apiGroup", group, names.dns1123_subdomain(group))
    for key in ("kind", "name"):
        errors += required_name(f"{path}.{key}", parameters.get(key), names.path_segment)
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


def _parameters(parameters: Object | None) -> str:
    if not parameters:
        return NONE
    group = parameters.get("apiGroup")
    kind = f"{parameters.get('kind', '')}.{group}" if group else parameters.get("kind", "")
    return f"{kind}/{parameters.get('name', '')}"


class IngressClassStrategy(Strategy):
    columns = (
        NAME,
        Column("Controller", Field("spec.controller"), "Who serves it."),
        Column("Parameters", Field("spec.parameters", show=_parameters)),
        AGE,
    )
    immutable = ("spec.controller",)

    def default(self, obj: Object) -> None:
        default_empty((obj.get("spec") or {}).get("parameters"), ("scope", "Cluster"))

    def validate(self, obj: Object) -> list[FieldError]:
        spec = obj.get("spec") or {}
        controller = spec.get("controller") or ""
        errors: list[FieldError] = []
        if not controller:
            errors.append(required("spec.controller"))
        else:
            if len(controller) > 250:
                errors.append(too_long("spec.controller", 250))
            if "/" not in controller:
                detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
                errors.append(invalid_value("spec.controller", controller, detail))
        return errors + _validate_parameters(spec.get("parameters"), "spec.parameters")
