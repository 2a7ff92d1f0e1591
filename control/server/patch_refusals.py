"""Upstream's error messages for an object that is invalid once it is patched.

Upstream decodes a strategic merge patch with a separate converter, whose messages name types and no fields, and the error
shows the patch as Go prints maps. JSON and merge patches are decoded like bodies, and the error shows the whole patched object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from control.decoding.decode_errors import go_message, misfit
from kube import errors
from kube.errors import StatusError


def unprocessable(shown: str, why: str) -> StatusError:
    """Return the 422 with a patch, or the patched object, and the problem."""
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
    """Return the body decoder's message for a patched object, without the kind at its beginning."""
    cause = error.__context__
    if struct is not None and isinstance(cause, msgspec.ValidationError):
        return go_message(cause, patched, struct)
    return error.message.partition(": ")[2] or error.message


def converter_message(error: StatusError, patched: Any, struct: type[msgspec.Struct]) -> str:
    """Return the message of upstream's converter for a strategically patched object."""
    cause = error.__context__
    found = misfit(cause, patched, struct) if isinstance(cause, msgspec.ValidationError) else None
    if found is None or "date" in found.expected or found.type.kind in _UNTYPED:
        return decoder_message(error, patched, struct)  # these types read JSON themselves there too
    given, type_ = _KINDS.get(found.got.split(" ")[0], found.got), found.type
    if type_.kind == "list":
        return f"cannot restore slice from {given}"
    if type_.kind == "map":
        return f"cannot restore map from {given}"
    if type_.kind == "struct":
        return f"cannot restore struct from: {given}"
    numbers = ("int32", "int64", "float64")
    if (given in numbers and type_.go in numbers) or (given, type_.go) == ("int64", "string"):
        return f"cannot convert {given} to {type_.go}"
    return f"unrecognized type: {type_.go}"


_UNTYPED = ("any", "quantity", "int-or-string")
_KINDS = {"str": "string", "int": "int64", "float": "float64", "array": "slice", "object": "map"}
"""Go's names of the kinds of JSON values, by msgspec's names of them."""
