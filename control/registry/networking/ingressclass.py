"""IngressClasses: the controller of an Ingress."""

from __future__ import annotations

from control.registry.checks import Errors, each
from control.registry.defaults import Defaults
from control.registry.rows import Rows
from control.registry.rules import form, max_bytes, optional, require, require_enum, require_name
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, NONE, Column, Field
from kube import names
from kube.errors import forbidden_field, invalid_value, required
from kube.json_object import Object


def _namespace(parameters: Object, path: str) -> Errors:
    scope, namespace, where = parameters.get("scope"), parameters.get("namespace"), f"{path}.namespace"
    if scope == "Namespace" and namespace is None:
        return [required(where, "`parameters.scope` is set to 'Namespace'")]
    if scope == "Cluster" and namespace is not None:
        return [forbidden_field(where, "`parameters.scope` is set to 'Cluster'")]
    if scope == "Namespace" and namespace is not None:
        return each(where, namespace, names.dns1123_label(namespace))
    return []


_PARAMETERS = Rows(
    ("apiGroup?", form(names.dns1123_subdomain)),
    ("kind", require_name(names.path_segment)),
    ("name", require_name(names.path_segment)),
    ("scope", require_enum("Cluster", "Namespace")),
    ("", _namespace),
)


def _domain_prefixed(controller: str, path: str) -> Errors:
    detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
    return [] if "/" in controller else [invalid_value(path, controller, detail)]


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
    field_rules = Rows(
        ("spec.controller", require(), max_bytes(250), optional(_domain_prefixed)),
        ("spec.parameters?", _PARAMETERS),
    )
    immutable = ("spec.controller",)
    field_defaults = Defaults(("spec.parameters.scope", "Cluster"))
