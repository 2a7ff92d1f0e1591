"""Validates a definition's schema: it is structural and consistent, and its defaults are valid.

A schema is structural when the shape of objects follows from `properties`, `items` and `additionalProperties` alone, and
what stands under allOf, anyOf, oneOf and not only judges values. The checks, paths and messages are those of
apiextensions-apiserver's schema/validation.go and of its API validation.
"""

from __future__ import annotations

from typing import Any

from control.cel import patterns
from control.decoding.numbers import NumberError, normalized
from control.schemas import validation
from control.schemas.schema import Schema, prune
from control.schemas.uniqueness import check_structure
from kube import errors
from kube.errors import FieldError
from kube.field_path import bounded
from kube.json_object import Object

Errors = list[FieldError]
_UNSUPPORTED = ("id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref")
_ONLY_SHAPE = ("title", "description")
_UNDEFINED = ("default", "externalDocs", "x-kubernetes-list-type", "x-kubernetes-map-type")
_FALSE = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource", "x-kubernetes-int-or-string")
_EMPTY = ("x-kubernetes-list-map-keys", "x-kubernetes-validations")
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_SCALARS = ("string", "boolean", "integer", "number")


def check(source: Object, path: str) -> Errors:
    """Return everything wrong with a schema that its type does not exclude; `path` is that of its root."""
    found: Errors = []
    _supported(source, path, found)
    _shape(source, "root", path, found)
    if not found:
        # Only what is structural can be compiled, and only that can tell whether its defaults are valid.
        _defaults(source, path, found, root=True)
    return sorted(found, key=str)


# -- what OpenAPI v3 of Kubernetes has ------------------------------------------------------------------------------
def _supported(source: Object, path: str, found: Errors) -> None:
    for name in _UNSUPPORTED:
        if source.get(name):
            found.append(errors.forbidden_field(f"{path}.{name}", f"{name} is not supported"))
    if source.get("type") == "null":
        found.append(
            errors.forbidden_field(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
        )
    elif source.get("type") and source["type"] not in (*_SCALARS, "object", "array"):
        allowed = ("array", "boolean", "integer", "number", "object", "string")
        found.append(errors.not_supported(f"{path}.type", source["type"], allowed))
    if isinstance(source.get("items"), list):
        found.append(errors.forbidden_field(f"{path}.items", "items must be a schema object and not an array"))
    if source.get("uniqueItems"):
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        found.append(errors.forbidden_field(f"{path}.uniqueItems", why))
    extra = source.get("additionalProperties")
    if extra is False:
        found.append(
            errors.forbidden_field(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
        )
    if isinstance(extra, dict) and source.get("properties"):
        why = "additionalProperties and properties are mutual exclusive"
        found.append(errors.forbidden_field(f"{path}.additionalProperties", why))
    if source.get("x-kubernetes-preserve-unknown-fields") is False:
        where = f"{path}.x-kubernetes-preserve-unknown-fields"
        found.append(errors.invalid_value(where, False, "must be true or undefined"))
    _lists(source, path, found)
    if source.get("x-kubernetes-map-type"):
        _typed(source, "x-kubernetes-map-type", "object", ("atomic", "granular"), path, found)
    for where, part in _below(source, path):
        _supported(part, where, found)


def _below(source: Object, path: str) -> list[tuple[str, Object]]:
    """Return all schemas right below one, with their paths."""
    parts = [(bounded(f"{path}.properties[{name}]"), part) for name, part in (source.get("properties") or {}).items()]
    for name in ("items", "additionalProperties", "not"):
        if isinstance(source.get(name), dict):
            parts.append((f"{path}.{name}", source[name]))
    for name in ("allOf", "anyOf", "oneOf"):
        parts += [(f"{path}.{name}[{index}]", part) for index, part in enumerate(source.get(name) or ())]
    return parts


def _typed(source: Object, name: str, wanted: str, allowed: tuple[str, ...], path: str, found: Errors) -> None:
    given = source.get("type") or ""
    why = f"must be {wanted} if {name} is specified"
    if not given:
        found.append(errors.required(f"{path}.type", why))
    elif given != wanted:
        found.append(errors.invalid_value(f"{path}.type", given, why))
    if source[name] not in allowed:
        found.append(errors.not_supported(f"{path}.{name}", source[name], allowed))


def _lists(source: Object, path: str, found: Errors) -> None:
    list_type, keys = source.get("x-kubernetes-list-type"), source.get("x-kubernetes-list-map-keys") or []
    if list_type:
        _typed(source, "x-kubernetes-list-type", "array", ("atomic", "map", "set"), path, found)
    if keys and list_type != "map":
        where, why = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        found.append(errors.invalid_value(where, list_type, why) if list_type else errors.required(where, why))
    item = source.get("items")
    item = item if isinstance(item, dict) else {}
    if list_type in ("set", "map") and item.get("nullable"):
        why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
        found.append(errors.forbidden_field(f"{path}.items.nullable", why))
    if list_type == "set":
        kind, inner = item.get("type"), f"{path}.items"
        if kind == "object" and item.get("x-kubernetes-map-type") != "atomic":
            where, why = (
                f"{inner}.x-kubernetes-map-type",
                "must be atomic as item of a list with x-kubernetes-list-type=set",
            )
            found.append(errors.invalid_value(where, item.get("x-kubernetes-map-type"), why))
        if kind == "array" and item.get("x-kubernetes-list-type") not in (None, "atomic"):
            where, why = (
                f"{inner}.x-kubernetes-list-type",
                "must be atomic as item of a list with x-kubernetes-list-type=set",
            )
            found.append(errors.invalid_value(where, item["x-kubernetes-list-type"], why))
    if list_type != "map":
        return
    where = f"{path}.x-kubernetes-list-map-keys"
    if not keys:
        found.append(errors.required(where, "must not be empty if x-kubernetes-list-type is map"))
    if item.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        found.append(_missing_or_wrong(f"{path}.items.type", item.get("type"), why))
    properties, required, seen = item.get("properties") or {}, set(item.get("required") or ()), set[str]()
    for index, key in enumerate(keys):
        if key in seen:
            found.append(errors.duplicate(f"{where}[{index}]", key))
            continue
        seen.add(key)
        known, place = properties.get(key), f"{path}.items.properties[{key}]"
        if known is None:
            found.append(errors.invalid_value(f"{where}[{index}]", key, "entries must all be names of item properties"))
            continue
        if known.get("type") not in _SCALARS:
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            found.append(_missing_or_wrong(f"{place}.type", known.get("type"), why))
        if known.get("nullable"):
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            found.append(errors.forbidden_field(f"{place}.nullable", why))
        if key not in required and known.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            found.append(errors.required(f"{place}.default", why))


def _missing_or_wrong(where: str, given: Any, why: str) -> FieldError:
    return errors.invalid_value(where, given, why) if given else errors.required(where, why)


# -- structure ------------------------------------------------------------------------------------------------------
_NO_TYPE = {
    "root": "must not be empty at the root",
    "item": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}


def _shape(source: Object, level: str, path: str, found: Errors) -> None:
    kind = source.get("type") or ""
    items, extra, properties = source.get("items"), source.get("additionalProperties"), source.get("properties") or {}
    if kind == "array" and items is None:
        found.append(errors.required(f"{path}.items", "must be specified"))
    if isinstance(items, dict):
        _shape(items, "item", f"{path}.items", found)
    for name, part in properties.items():
        _shape(part, "field", bounded(f"{path}.properties[{name}]"), found)
    if extra is not None and level == "root":
        found.append(errors.forbidden_field(f"{path}.additionalProperties", "must not be used at the root"))
    if isinstance(extra, dict):
        _shape(extra, "field", f"{path}.additionalProperties", found)
    int_or_string = bool(source.get("x-kubernetes-int-or-string"))
    preserve, embedded = bool(source.get(_FALSE[0])), bool(source.get(_FALSE[1]))
    if int_or_string:
        for name, given in ((_FALSE[0], preserve), (_FALSE[1], embedded)):
            if given:
                why = "must be false if x-kubernetes-int-or-string is true"
                found.append(errors.invalid_value(f"{path}.{name}", True, why))
    _judged(source, path, found, int_or_string=int_or_string)
    if embedded and kind != "object":
        why = "must be object if x-kubernetes-embedded-resource is true"
        found.append(_missing_or_wrong(f"{path}.type", kind, why))
    elif not kind and not int_or_string and not preserve:
        found.append(errors.required(f"{path}.type", _NO_TYPE[level]))
    if embedded and extra is not None:
        why = "must not be used if x-kubernetes-embedded-resource is set"
        found.append(errors.forbidden_field(f"{path}.additionalProperties", why))
    if level == "root" and kind and kind != "object":
        found.append(errors.invalid_value(f"{path}.type", kind, "must be object at the root"))
    if embedded and not preserve and not properties:
        why = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields"
        found.append(errors.required(f"{path}.properties", why))
    _metadata(properties, root=level == "root", resource=level == "root" or embedded, path=path, found=found)


def _metadata(properties: Object, *, root: bool, resource: bool, path: str, found: Errors) -> None:
    if resource:
        for name in ("kind", "apiVersion"):
            if name in properties and properties[name].get("type") != "string":
                where = f"{path}.properties[{name}].type"
                found.append(errors.invalid_value(where, properties[name].get("type") or "", "must be string"))
    metadata = properties.get("metadata")
    if metadata is None or not resource:
        return
    where = f"{path}.properties[metadata]"
    if metadata.get("type") != "object":
        found.append(errors.invalid_value(f"{where}.type", metadata.get("type") or "", "must be object"))
    known = set(metadata.get("properties") or ()) - {"name", "generateName"}
    others = set(metadata) - {"type", "properties", "description", "default"}
    if root and (known or others):
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(errors.forbidden_field(where, why))


def _judged(source: Object, path: str, found: Errors, *, int_or_string: bool) -> None:
    """Check what only judges values: patterns, and the schemas under the logical keywords."""
    pattern = source.get("pattern")
    if pattern:
        try:
            patterns.compiled(pattern)
        except patterns.PatternError as error:
            why = f"must be a valid regular expression, but isn't: {error}"
            found.append(errors.invalid_value(f"{path}.pattern", pattern, why))
    for name in ("anyOf", "allOf", "oneOf"):
        parts = source.get(name) or ()
        if int_or_string and name == "anyOf" and list(parts) == _INT_OR_STRING:
            continue
        for index, part in enumerate(parts):
            first = int_or_string and name == "allOf" and index == 0 and part.get("anyOf") == _INT_OR_STRING
            _nested({**part, "anyOf": []} if first else part, f"{path}.{name}[{index}]", found, source)
    if source.get("not") is not None:
        _nested(source["not"], f"{path}.not", found, source)


def _nested(source: Object, path: str, found: Errors, spine: Object | None) -> None:
    _judged(source, path, found, int_or_string=False)
    if isinstance(source.get("items"), dict):
        inner = (spine or {}).get("items")
        if spine is not None and not isinstance(inner, dict):
            found.append(errors.required(_outside(path, "items"), f"because it is defined in {path}.items"))
        _nested(source["items"], f"{path}.items", found, inner if isinstance(inner, dict) else None)
    for name, part in (source.get("properties") or {}).items():
        where = bounded(f"{path}.properties[{name}]")
        known = ((spine or {}).get("properties") or {}).get(name)
        if spine is not None and known is None:
            found.append(errors.required(_outside(path, f"properties[{name}]"), f"because it is defined in {where}"))
        _nested(part, where, found, known)
    if source.get("type"):
        found.append(errors.forbidden_field(f"{path}.type", "must be empty to be structural"))
    for name in ("additionalProperties", *_UNDEFINED):
        if source.get(name) is not None:
            found.append(errors.forbidden_field(f"{path}.{name}", "must be undefined to be structural"))
    for name in _ONLY_SHAPE + _EMPTY:
        if source.get(name):
            found.append(errors.forbidden_field(f"{path}.{name}", "must be empty to be structural"))
    for name in ("nullable", *_FALSE):
        if source.get(name):
            found.append(errors.forbidden_field(f"{path}.{name}", "must be false to be structural"))
    if "metadata" in (source.get("properties") or {}):
        why = "must not be specified in a nested context"
        found.append(errors.forbidden_field(f"{path}.properties[metadata]", why))


def _outside(path: str, what: str) -> str:
    """Return where something that is judged should have its shape: the path without its logical keywords."""
    parts = [part for part in path.split(".") if not part.startswith(("allOf[", "anyOf[", "oneOf[")) and part != "not"]
    return ".".join([*parts, what])


# -- defaults -------------------------------------------------------------------------------------------------------
def _defaults(source: Object, path: str, found: Errors, *, root: bool = False) -> None:
    if "default" in source:
        where = f"{path}.default"
        if root:
            found.append(errors.forbidden_field(where, "must not be set at the root"))
            return
        schema = Schema(source)
        try:
            value = normalized(source["default"])
        except NumberError as error:
            found.append(errors.invalid_value(where, "", str(error)))
            return
        dropped: list[str] = []
        pruned = prune(value, schema, "", dropped, resource=schema.embedded)
        if dropped:
            found.append(errors.invalid_value(where, value, "must not have unknown fields"))
        for problem in [*validation.check(pruned, schema), *check_structure(pruned, schema)]:
            below = "" if problem.path in (validation.NOWHERE, "") else f".{problem.path}"
            detail = problem.detail.replace(" in body ", f"{where}{below} in body ", 1) if not below else problem.detail
            found.append(type(problem)(f"{where}{below}", problem.type, detail.strip(), problem.value))
        if source.get("nullable") is not True and value is None:
            found.append(errors.invalid_value(where, None, "must not be null"))
    for where, part in _below(source, path):
        if root and where == f"{path}.properties[metadata]":
            _no_defaults(part, where, found)
        else:
            _defaults(part, where, found)


def _no_defaults(source: Object, path: str, found: Errors) -> None:
    """Reject defaults in an object's own metadata."""
    if "default" in source:
        found.append(errors.forbidden_field(f"{path}.default", "must not be set in top-level metadata"))
    for where, part in _below(source, path):
        _no_defaults(part, where, found)
