"""Upstream's error messages for an object that is invalid once it is patched.

A strategic merge patch goes through a converter of its own there, which names no field but only what it could not make of
what, and the refusal shows the patch as Go prints maps. JSON and merge patches go through the decoder of bodies, and the
refusal shows the whole patched object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding.decode_errors import go_message, misfit
from kube import errors
from kube.errors import StatusError


def unprocessable(shown: str, why: str) -> StatusError:
    """Return the 422 that shows a patch, or what came of it, and says what is wrong with it."""
    return errors.invalid("", "", "", [errors.invalid_value("patch", shown, why)])


def go_text(value: Any) -> str:
    """Print a JSON value as Go's %+v does."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_text(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_text(item) for item in value) + "]"
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)


def decoder_message(error: StatusError, patched: Any, struct: type[msgspec.Struct] | None) -> str:
    """Return what the decoder of bodies says of a patched object, without naming the kind before it."""
    cause = error.__context__
    if struct is not None and isinstance(cause, msgspec.ValidationError):
        return go_message(cause, patched, struct)
    return error.message.partition(": ")[2] or error.message


def converter_message(error: StatusError, patched: Any, struct: type[msgspec.Struct]) -> str:
    """Return what upstream's converter says of a strategically patched object."""
    cause = error.__context__
    found = misfit(cause, patched, struct) if isinstance(cause, msgspec.ValidationError) else None
    if found is None or "date" in found.expected or found.shape.kind == "any":
        return decoder_message(error, patched, struct)  # these types read JSON themselves there too
    given, shape = _KINDS.get(found.got.split(" ")[0], found.got), found.shape
    if shape.kind == "list":
        return f"cannot restore slice from {given}"
    if shape.kind == "map":
        return f"cannot restore map from {given}"
    if shape.kind == "struct":
        return f"cannot restore struct from: {given}"
    numbers = ("int32", "int64", "float64")
    if (given in numbers and shape.go in numbers) or (given, shape.go) == ("int64", "string"):
        return f"cannot convert {given} to {shape.go}"
    return f"unrecognized type: {shape.go}"


_KINDS = {"str": "string", "int": "int64", "float": "float64", "array": "slice", "object": "map"}
"""What Go calls the kinds of JSON values, by msgspec's names of them."""
