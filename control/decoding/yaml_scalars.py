"""Scalars of YAML as JSON values, resolved as Go's yaml.v2 does for the API server.

That is YAML 1.1 for booleans (yes, no, on, off) and for octal numbers, but without its base-60 numbers: `1:30` is a string,
and so is what looks like a time. Whole floats are integers, as encoding/json writes them.
Upstream: go.yaml.in/yaml/v2, resolve.go.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
import struct
from typing import Any

_TAG = "tag:yaml.org,2002:"
_STRING, _BINARY = f"{_TAG}str", f"{_TAG}binary"
_RESOLVED = {f"{_TAG}{name}": name for name in ("str", "bool", "int", "float", "null", "timestamp")}
_WORDS: dict[str, Any] = {
    **{word: True for word in ("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON")},
    **{word: False for word in ("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF")},
    **{word: None for word in ("", "~", "null", "Null", "NULL")},
    **{word: math.nan for word in (".nan", ".NaN", ".NAN")},
    **{sign + word: math.inf for sign in ("", "+") for word in (".inf", ".Inf", ".INF")},
    **{"-" + word: -math.inf for word in (".inf", ".Inf", ".INF")},
}
_INTEGER = re.compile(
    r"([+-]?)(?:0[xX](?P<hex>[0-9a-fA-F]+)|0[bB](?P<bits>[01]+)|0[oO]?(?P<octal>[0-7]+)|(?P<decimal>0|[1-9][0-9]*))"
)
_BASES = {"hex": 16, "bits": 2, "octal": 8, "decimal": 10}
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NUMBERS = frozenset("+-.0123456789")
_LONGEST_DECIMAL = 20
"""Digits of the greatest integer, 2^64 - 1; longer ones are floats, because Python's int() is quadratic."""
_SHOWN = 100
"""Characters of a scalar in an error."""


def scalar(text: str, tag: str | None, *, plain: bool) -> Any:
    """Return a scalar's value; `plain`: neither quoted nor a block. Raises ValueError if the tag does not match."""
    if tag is None:
        return resolve(text) if plain else text
    if tag == _BINARY:
        return _bytes(text)
    name = _RESOLVED.get(tag)
    if name in (None, "str", "timestamp"):
        return text
    value = resolve(text)
    found = _name(value)
    if name == "float" and found == "int":
        return value
    if name != found:
        raise ValueError(f"cannot decode !!{found} `{text[:_SHOWN]}` as a !!{name}")
    return value


def resolve(text: str) -> Any:
    """Return the value of a scalar without quotes."""
    try:
        return _WORDS[text]
    except KeyError:
        return _number(text) if text[0] in _NUMBERS else text


def key(value: Any) -> str:
    """Return a mapping's key as JSON has it; raises ValueError for null and for numbers beyond 64 bits."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return str(value)
    if isinstance(value, float):
        return _float_key(value)
    raise ValueError(f"unsupported map key: {'null' if value is None else str(value)[:_SHOWN]}")


def number(value: float) -> int | float:
    """Return a float as JSON carries it: whole ones as integers. Raises ValueError for NaN and infinity."""
    if not math.isfinite(value):
        raise ValueError(f"json: unsupported value: {'NaN' if math.isnan(value) else '+Inf' if value > 0 else '-Inf'}")
    return int(value) if value.is_integer() and abs(value) < 1 << 63 else value


def _number(text: str) -> Any:
    if text[0] != "." and (whole := _integer(text.replace("_", ""))) is not None:
        return whole
    digits = text if text[0] == "." else text.replace("_", "")
    if _FLOAT.fullmatch(digits):
        value = float(digits)
        if math.isfinite(value):
            return value
    return text


def _integer(text: str) -> int | None:
    """Return an integer of up to 64 bits, signed or not, None for any other text."""
    found = _INTEGER.fullmatch(text)
    if found is None or found.lastgroup is None:
        return None
    digits = found[found.lastgroup]
    if found.lastgroup == "decimal" and len(digits) > _LONGEST_DECIMAL:
        return None
    value = int(digits, _BASES[found.lastgroup])
    if found[1] == "-":
        return -value if value <= 1 << 63 else None
    return value if value < 1 << (63 if found[1] else 64) else None


def _name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "bool"
    return {int: "int", float: "float"}.get(type(value), "str")


def _bytes(text: str) -> str:
    try:
        return base64.b64decode(text.replace("\n", "").replace("\r", ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("!!binary value contains invalid base64 data, or no text") from error


def _float_key(value: float) -> str:
    """Write a float as Go's FormatFloat(value, 'g', -1, 32)."""
    if not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    try:
        single: float = struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return ".inf" if value > 0 else "-.inf"
    shortest = next(
        text for n in range(9) if struct.pack("f", float(text := f"{single:.{n}e}")) == struct.pack("f", single)
    )
    exponent = int(shortest.partition("e")[2])
    if exponent < -4 or exponent >= 6:
        return shortest
    return f"{float(shortest):.{max(0, len(shortest.partition('e')[0].lstrip('-').replace('.', '')) - 1 - exponent)}f}"
