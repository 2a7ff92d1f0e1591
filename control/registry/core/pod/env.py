"""Checks of environment variables, of their sources and of whole objects taken as environment."""

from __future__ import annotations

import re
from collections.abc import Mapping

from control.registry.checks import Errors, FieldErrors, each, no_backsteps
from control.registry.naming import subdomain
from control.registry.rows import Rows
from control.registry.rules import form, optional, require, require_name
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required
from kube.json_object import Object
from kube.quantity import canonical, parse

_ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_VOLUME_FIELDS = ("metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid")
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_FIELDS = frozenset(
    {
        *_ENV_FIELDS,
        *_VOLUME_FIELDS,
        "spec.restartPolicy",
        "spec.schedulerName",
        "status.phase",
    }
)
_UNITS = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
_SUBSCRIPT = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]")
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
ONE_SOURCE = "may not have more than one field specified at a time"


def validate_env(variables: list[Object] | None, volumes: Mapping[str, Object], path: str) -> FieldErrors:
    for index, variable in enumerate(variables or ()):
        where, name = f"{path}[{index}]", variable.get("name") or ""
        if not name:
            yield required(f"{where}.name")
        else:
            yield from each(f"{where}.name", name, names.env_var_name(name))
        source = variable.get("valueFrom")
        if source is not None:
            yield from _value_from(source, variable.get("value") or "", volumes, f"{where}.valueFrom")


def _value_from(source: Object, value: str, volumes: Mapping[str, Object], path: str) -> FieldErrors:
    found = [name for name in _SOURCES if source.get(name) is not None]
    if not found:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        yield invalid_value(path, "", detail)
    elif value:
        yield invalid_value(path, "", "may not be specified when `value` is not empty")
    elif len(found) > 1:
        yield invalid_value(path, "", ONE_SOURCE)
    for kind in found:
        where = f"{path}.{kind}"
        if kind == "fieldRef":
            yield from field_reference(source[kind], where, _ENV_FIELDS)
        elif kind == "resourceFieldRef":
            yield from resource_reference(source[kind], where, in_volume=False)
        elif kind in ("configMapKeyRef", "secretKeyRef"):
            yield from _KEY_REFERENCE(source[kind], where)
        elif kind == "fileKeyRef":
            yield from _file_reference(source[kind], volumes, where)


_KEY_REFERENCE = Rows(("name", form(names.dns1123_subdomain)), ("key", require_name(names.config_map_key)))
_FILE_REFERENCE = Rows(
    ("key", require_name(names.env_var_name)),
    ("volumeName", require_name(names.dns1123_label)),
    ("path", require(), optional(no_backsteps)),
)


def _file_reference(reference: Object, volumes: Mapping[str, Object], path: str) -> Errors:
    """Check a variable that a container writes to a file: only an emptyDir may hold it."""
    volume, where, errors = reference.get("volumeName") or "", f"{path}.volumeName", _FILE_REFERENCE(reference, path)
    if volume not in volumes:
        errors.append(FieldError(where, "Not found", "", volume))
    elif volumes[volume].get("emptyDir") is None:
        errors.append(invalid_value(where, volume, "referenced volume must be of type emptyDir"))
    return errors


def field_reference(reference: Object, path: str, allowed: tuple[str, ...] = _VOLUME_FIELDS) -> Errors:
    """Check what of the pod itself is requested."""
    if not reference.get("apiVersion"):
        return [required(f"{path}.apiVersion")]
    field = reference.get("fieldPath") or ""
    if not field:
        return [required(f"{path}.fieldPath")]
    match = _SUBSCRIPT.fullmatch(field)
    if match:
        key = match.group(2)
        # The place of these is the reference itself, not its fieldPath.
        return each(path, key, names.qualified_name(key.lower() if match.group(1).endswith("annotations") else key))
    if field not in _FIELDS:
        detail = f"error converting fieldPath: field label not supported: {field}"
        return [invalid_value(f"{path}.fieldPath", field, detail)]
    return [] if field in allowed else [not_supported(f"{path}.fieldPath", field, allowed)]


def resource_reference(reference: Object, path: str, *, in_volume: bool) -> Errors:
    """Check what of a container's resources is requested."""
    name = reference.get("resource") or ""
    if in_volume and not reference.get("containerName"):
        return [required(f"{path}.containerName")]
    if not name:
        return [required(f"{path}.resource")]
    errors: Errors = []
    if name not in _RESOURCES and not name.startswith(("limits.hugepages-", "requests.hugepages-")):
        errors.append(not_supported(f"{path}.resource", name, _RESOURCES))
    return errors + _divisor(name, reference.get("divisor"), f"{path}.divisor")


def _divisor(name: str, divisor: str | None, path: str) -> Errors:
    """Check the unit that an amount is given in: whole units or, of cpu, thousandths."""
    if divisor is None or not parse(divisor):
        return []
    if name.endswith(".cpu"):
        if canonical(divisor) in ("1", "1m"):
            return []
        return [invalid_value(path, name, "only divisor's values 1m and 1 are supported with the cpu resource")]
    if canonical(divisor) in _UNITS:
        return []
    what = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name.partition(".")[2], "hugepages")
    detail = f"only divisor's values {', '.join(_UNITS)} are supported with the {what} resource"
    return [invalid_value(path, name, detail)]


def validate_env_from(sources: list[Object] | None, path: str) -> Errors:
    errors: Errors = []
    for index, source in enumerate(sources or ()):
        where = f"{path}[{index}]"
        if source.get("prefix"):
            errors += each(f"{where}.prefix", source["prefix"], names.env_var_name(source["prefix"]))
        found = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for kind in found:
            name = source[kind].get("name") or ""
            problems = each(f"{where}.{kind}.name", name, subdomain(name, prefix=True))
            errors += problems if name else [required(f"{where}.{kind}.name")]
        # The place of these is the list itself.
        if not found:
            errors.append(invalid_value(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(found) > 1:
            errors.append(invalid_value(path, "", ONE_SOURCE))
    return errors


def unique(values: list[str], path: str, key: str) -> Errors:
    """Report repeated values of list elements, each under its own index."""
    seen: set[str] = set()
    errors = []
    for index, value in enumerate(values):
        if value in seen:
            errors.append(duplicate(f"{path}[{index}].{key}", value))
        seen.add(value)
    return errors
