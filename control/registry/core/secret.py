"""Secrets: base64 values under keys, typed; `stringData` is a convenience of writing and is never stored."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from control.registry.changes import validate_immutable
from control.registry.core.data_keys import decoded_size, validate_frozen, validate_keys, validate_size
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, count
from kube.errors import FieldError, invalid_value, required
from kube.json_object import Object

TOKEN_TYPE, ACCOUNT_ANNOTATION = "kubernetes.io/service-account-token", "kubernetes.io/service-account.name"
_JSON_KEYS = {"kubernetes.io/dockercfg": ".dockercfg", "kubernetes.io/dockerconfigjson": ".dockerconfigjson"}
_NEEDED_KEYS = {"kubernetes.io/ssh-auth": ("ssh-privatekey",), "kubernetes.io/tls": ("tls.crt", "tls.key")}


def _validate_json(data: Object, key: str) -> list[FieldError]:
    if key not in data:
        return [required(f"data[{key}]")]
    try:
        msgspec.json.decode(base64.b64decode(data[key]), type=dict[str, Any])
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
