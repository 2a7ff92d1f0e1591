"""ConfigMaps and Secrets: values under keys, at most 1 MiB together, frozen once immutable.

A ConfigMap has text and binary values. A Secret has base64 values, and a type that needs some of its keys; `stringData` is a
convenience of writing and is never stored.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from control.registry.changes import validate_immutable
from control.registry.checks import Errors, each
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, count
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object
from kube.nesting import check_nesting

MAX_BYTES = 1024 * 1024
FROZEN = "field is immutable when `immutable` is set"


def validate_keys(data: Object | None, path: str) -> Errors:
    return [error for key in data or () for error in each(f"{path}[{key}]", key, names.config_map_key(key))]


def validate_size(total: int, path: str) -> Errors:
    return [FieldError(path, "Too long", f"may not be more than {MAX_BYTES} bytes")] if total > MAX_BYTES else []


def validate_frozen(obj: Object, old: Object, parts: tuple[str, ...]) -> Errors:
    if not old.get("immutable"):
        return []
    errors = [] if obj.get("immutable") else [forbidden_field("immutable", FROZEN)]
    changed = [part for part in parts if (obj.get(part) or None) != (old.get(part) or None)]
    return errors + [forbidden_field(part, FROZEN) for part in changed]


def decoded_size(encoded: str) -> int:
    """Return the decoded size of base64 text in bytes."""
    return len(encoded) * 3 // 4 - encoded[-2:].count("=")


def _count(config_map: Object) -> int:
    return len(config_map.get("data") or ()) + len(config_map.get("binaryData") or ())


class ConfigMapStrategy(Strategy):
    columns = (NAME, Column("Data", Field("", show=_count), "How many values there are."), AGE)
    has_generation = False

    def validate(self, obj: Object) -> list[FieldError]:
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        errors = list(validate_keys(data, "data"))
        for key in data.keys() & binary.keys():
            errors.append(invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        errors += validate_keys(binary, "binaryData")
        # The size is that of the whole object, which has no name of its own as a field.
        total = sum(len(v.encode()) for v in data.values()) + sum(map(decoded_size, binary.values()))
        return errors + validate_size(total, "[]")

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        return validate_frozen(obj, old, ("data", "binaryData")) + self.validate(obj)


TOKEN_TYPE, ACCOUNT_ANNOTATION = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
_JSON_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}
_NEEDED_KEYS = {"kubernetes.io/ssh-auth": ("ssh-privatekey",), "kubernetes.io/tls": ("tls.crt", "tls.key")}


def _validate_json(data: Object, key: str) -> list[FieldError]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        text = base64.b64decode(data[key])
        check_nesting(text)
        msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, msgspec.DecodeError) as error:
        return [invalid_value(f"data[{key}]", "<secret contents redacted>", str(error))]
    return []


class SecretStrategy(Strategy):
    columns = (
        NAME,
        Column("Type", Field("type"), "What the secret is for."),
        Column("Data", count("data"), type="integer"),
        AGE,
    )
    has_generation = False

    def default(self, obj: Object) -> None:
        if not obj.get("type"):
            obj["type"] = "Opaque"
        text = obj.pop("stringData", None)
        if text:
            data = obj.setdefault("data", {})
            for key, value in text.items():
                data[key] = base64.b64encode(value.encode()).decode()

    def validate(self, obj: Object) -> list[FieldError]:
        data = obj.get("data") or {}
        errors = list(validate_keys(data, "data"))
        errors += validate_size(sum(map(decoded_size, data.values())), "data")
        kind = obj.get("type") or ""
        if kind == TOKEN_TYPE:
            annotations = obj.get("metadata", {}).get("annotations") or {}
            if not annotations.get(ACCOUNT_ANNOTATION):
                errors.append(required(f"metadata.annotations[{ACCOUNT_ANNOTATION}]"))
        elif kind in _JSON_KEYS:
            errors += _validate_json(data, _JSON_KEYS[kind])
        elif kind == "kubernetes.io/basic-auth":
            if "username" not in data and "password" not in data:
                errors += [required(f"data[{key}]") for key in ("username", "password")]
        else:
            errors += [required(f"data[{key}]") for key in _NEEDED_KEYS.get(kind, ()) if key not in data]
            if kind == "kubernetes.io/ssh-auth" and data.get("ssh-privatekey") == "":
                errors.append(required("data[ssh-privatekey]"))
        return errors

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        errors = validate_immutable(obj, old, "type")
        return errors + validate_frozen(obj, old, ("data",)) + self.validate(obj)

    def fields(self, obj: Object) -> dict[str, str]:
        return {"type": obj.get("type") or ""}
