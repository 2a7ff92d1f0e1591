"""Checks that ConfigMaps and Secrets share: keys, the total size of values, and immutability."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, each
from kube import names
from kube.errors import FieldError, forbidden_field
from kube.json_object import Object

MAX_BYTES = 1024 * 1024
FROZEN = "field is immutable when `immutable` is set"


def validate_keys(data: Object | None, path: str) -> FieldErrors:
    for key in data or {}:
        yield from each(f"{path}[{key}]", key, names.config_map_key(key))


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
