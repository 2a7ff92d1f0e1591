"""Server-side apply: an apply patch read as a change of the object.

Types are checked on a decoded copy. The merge works on the configuration as it was sent, because a field that it leaves out has
another meaning than an empty one.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import msgspec

from control.decoding.decode import Decoder, directive
from control.decoding.yaml_body import duplicate_keys, load_yaml, strict_error
from control.http.exchange import Request
from control.patch.apply import apply
from control.patch.apply.typed import check, wrong_type
from control.registry.context import Context
from control.registry.managed import reset_fields, shape_of
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.resources import Resource

Change = Callable[[Object | None], Object]
"""Maps the present object, None if there is none, to the patched one."""


def read_apply(
    request: Request,
    body: bytes,
    resource: Resource,
    decoder: Decoder,
    context: Context,
    now: datetime,
    subresource: str,
) -> Change:
    """Read an apply patch; raises 400 for one that cannot be read or names another object, 422 for a wrong type."""
    validation = directive(request.option("fieldValidation"))
    try:
        applied = load_yaml(body)
    except ValueError as error:
        raise errors.bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from error
    if not isinstance(applied, dict):
        raise errors.bad_request("error decoding YAML: an apply patch is an object")
    _check_applied(applied, request, resource)
    # Types are checked on what was sent; the merge works on it as it stands, since leaving out is saying something.
    unknown: list[str] = []
    schema, skip = shape_of(resource), reset_fields(resource, subresource)
    try:
        checked = decoder.convert(applied, "Warn", unknown, kind=resource.kind)
    except StatusError as error:
        if isinstance(error.__context__, msgspec.ValidationError):
            raise wrong_type(applied, schema, error.__context__) from error
        raise
    strange = [problem.removeprefix('unknown field "').removesuffix('"') for problem in unknown]
    if strange:
        check(applied, schema, strange)
    repeated = duplicate_keys(body) if validation != "Ignore" else []
    if repeated and validation == "Strict":
        why = f"error converting YAML to JSON: {strict_error(repeated)}"
        raise errors.bad_request(f"error strict decoding YAML: {why}")
    request.warnings.extend(repeated)
    configuration = _same_shape(applied, checked)
    force = bool(request.flag("force"))

    def change(old: Object | None) -> Object:
        meta = configuration.get("metadata", {})
        if old is None and meta.get("uid"):
            why = f"uid mismatch: the provided object specified uid {meta['uid']}, and no existing object was found"
            raise errors.conflict(resource.group, resource.plural, request.info.name, why)
        fresh: Object = msgspec.json.decode(msgspec.json.encode(configuration))
        result = apply(
            old, fresh, context.field_manager, force=force, schema=schema, now=now, subresource=subresource, skip=skip
        )
        obj = decoder.convert(result, "Ignore", [])
        obj.setdefault("metadata", {})["name"] = request.info.name
        return obj

    return change


def _check_applied(applied: Object, request: Request, resource: Resource) -> None:
    if not applied.get("kind"):
        raise errors.bad_request("Object 'Kind' is missing in the applied configuration")
    if applied.get("apiVersion") != resource.api_version or applied["kind"] != resource.kind:
        raise errors.bad_request(
            f"the API version and kind in the data ({applied.get('apiVersion')}, {applied['kind']}) do not match those of"
            f" the request ({resource.api_version}, {resource.kind})"
        )
    meta = applied.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise errors.bad_request("metadata is no object")
    name, namespace = request.info.name, request.info.namespace
    if meta.get("name") not in (None, "", name):
        raise errors.bad_request(f"the name of the object ({meta['name']}) does not match the name on the URL ({name})")
    meta["name"] = name
    if resource.namespaced:
        if meta.get("namespace") not in (None, "", namespace):
            raise errors.bad_request(
                f"the namespace of the object ({meta['namespace']}) does not match the namespace on the request ({namespace})"
            )
        meta["namespace"] = namespace


def _same_shape(applied: Any, checked: Any) -> Any:
    """Return what was applied without the fields that no type knows, its values in their canonical form.

    Nulls and empty values, which a decoded object does not show, stay.
    """
    if isinstance(applied, dict):
        if not isinstance(checked, dict):
            return applied
        return {
            key: _same_shape(value, checked[key]) if key in checked else value
            for key, value in applied.items()
            if key in checked or value in (None, "", [], {}, 0, False)
        }
    if isinstance(applied, list):
        if isinstance(checked, list) and len(applied) == len(checked):
            return [_same_shape(a, c) for a, c in zip(applied, checked, strict=True)]
        return applied
    return checked
